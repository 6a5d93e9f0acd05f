// SPDX-License-Identifier: GPL-2.0-only
//
// nvme: a batch of completions defers its unmaps, flushes once, and only then ends
// its requests.
//
// The stock batch unmaps a request and prepares its end, then goes on to the next
// request. Preparing the end frees memory (the ranges of a discard), so the patched
// batch unmaps all requests first. A batch of polled I/O may hold requests of
// several controllers; each sequence of requests of the same controller has its
// own flush.
//
// Descriptor lists (PRP, SGL) may go back to their pool before the flush. The lists
// are coherent memory, which stays mapped for every user; the next user fills a
// list with IOVAs of its own; and no IOVA in the old list is used again before the
// flush.

@ header @
@@
  #include "nvme.h"
+ #include <xsmmu/dma.h>

@ declare @
expression dev, mask;
@@
  nvme_pci_alloc_dev(...)
  {
  <...
  dma_set_min_align_mask(dev, mask);
+ xsmmu_set_batch_aware(dev);
  ...>
  }

@ unmap_page @
identifier fn =~ "^nvme_unmap_\(data\|metadata\)$";
expression dev, addr, size, dir;
@@
  fn(...)
  {
  <...
- dma_unmap_page(dev, addr, size, dir);
+ xsmmu_unmap_page_deferred(dev, addr, size, dir);
  ...>
  }

@ unmap_sgtable @
identifier fn =~ "^nvme_unmap_\(data\|metadata\)$";
expression dev, table, dir, attrs;
@@
  fn(...)
  {
  <...
- dma_unmap_sgtable(dev, table, dir, attrs);
+ xsmmu_unmap_sgtable_deferred(dev, table, dir, attrs);
  ...>
  }

@ failed_submission @
identifier dev, req;
@@
  nvme_prep_rq(struct nvme_dev *dev, struct request *req)
  {
  <...
  nvme_unmap_data(dev, req);
+ xsmmu_flush(dev->dev);
  ...>
  }

@ one_request @
identifier req;
@@
+ static struct device *nvme_pci_device(struct request *req)
+ {
+ 	struct nvme_queue *nvmeq = req->mq_hctx->driver_data;
+
+ 	return nvmeq->dev->dev;
+ }
+
  nvme_pci_complete_rq(struct request *req)
  {
  nvme_pci_unmap_rq(req);
+ xsmmu_flush(nvme_pci_device(req));
  ...
  }

@ batch @
identifier iob;
iterator name rq_list_for_each;
@@
+ static void nvme_pci_unmapped(struct request *req)
+ {
+ }
+
  nvme_pci_complete_batch(struct io_comp_batch *iob)
  {
+ 	struct device *dev = NULL;
+ 	struct request *req;
+
+ 	rq_list_for_each(&iob->req_list, req) {
+ 		if (dev && dev != nvme_pci_device(req))
+ 			xsmmu_flush(dev);
+ 		dev = nvme_pci_device(req);
+ 		nvme_pci_unmap_rq(req);
+ 	}
+ 	if (dev)
+ 		xsmmu_flush(dev);
- nvme_complete_batch(iob, nvme_pci_unmap_rq);
+ nvme_complete_batch(iob, nvme_pci_unmapped);
  }
