// SPDX-License-Identifier: GPL-2.0-only
//
// igb: each half of a poll (transmit, receive) defers its unmaps, flushes once, and
// only then frees and hands on.
//
// Transmit: the stock loop frees a packet and then unmaps the packet. The patched
// loop unmaps, and leaves the packet in its slot of the ring; next_to_watch marks
// the first slot of a packet. No slot is used again before next_to_clean moves on.
// After the flush a second walk frees the packets.
//
// Receive: a page that is not recycled has an additional reference until the flush,
// and packets wait on a list. A packet that XDP took has a new owner already, so
// the page of such a packet is flushed at once.
//
// Maps: a refill maps all its pages without a flush and flushes once, before the
// tail moves. A packet to send does the same, even if the next packet moves the
// tail for both, because the stack may send the next packet on another CPU.
//
// Error and teardown paths keep their ordinary unmaps, and XDP its ordinary maps.

@ header @
@@
  #include "igb.h"
+ #include <xsmmu/dma.h>

@ declare @
identifier pdev, ent;
@@
  igb_probe(struct pci_dev *pdev, const struct pci_device_id *ent)
  {
  ...
  pci_set_master(pdev);
+ xsmmu_set_batch_aware(&pdev->dev);
  ...
  }

@ sent_single @
expression device, addr, size, dir;
@@
  igb_clean_tx_irq(...)
  {
  <...
- dma_unmap_single(device, addr, size, dir);
+ xsmmu_unmap_single_deferred(device, addr, size, dir);
  ...>
  }

@ sent_page @
expression dev, addr, size, dir;
@@
  igb_clean_tx_irq(...)
  {
  <...
- dma_unmap_page(dev, addr, size, dir);
+ xsmmu_unmap_page_deferred(dev, addr, size, dir);
  ...>
  }

@ sent_kept @
identifier tx_buffer, napi_budget;
@@
  igb_clean_tx_irq(..., int napi_budget)
  {
  <...
- tx_buffer->next_to_watch = NULL;
  ...
- if (tx_buffer->type == IGB_TYPE_SKB)
- 	napi_consume_skb(tx_buffer->skb, napi_budget);
- else
- 	xdp_return_frame(tx_buffer->xdpf);
  ...>
  }

@ sent_freed @
identifier tx_ring, napi_budget, i;
@@
+ /* Flush, then free the unmapped packets that start in [next_to_clean, end). */
+ static void igb_free_unmapped(struct igb_ring *tx_ring, unsigned int end,
+ 			      int napi_budget)
+ {
+ 	unsigned int i = tx_ring->next_to_clean;
+
+ 	xsmmu_flush(tx_ring->dev);
+ 	while (i != end) {
+ 		struct igb_tx_buffer *tx_buffer = &tx_ring->tx_buffer_info[i];
+
+ 		if (tx_buffer->next_to_watch) {
+ 			tx_buffer->next_to_watch = NULL;
+ 			if (tx_buffer->type == IGB_TYPE_SKB)
+ 				napi_consume_skb(tx_buffer->skb, napi_budget);
+ 			else
+ 				xdp_return_frame(tx_buffer->xdpf);
+ 		}
+ 		if (++i == tx_ring->count)
+ 			i = 0;
+ 	}
+ }
+
  igb_clean_tx_irq(..., int napi_budget)
  {
  <...
+ igb_free_unmapped(tx_ring, i, napi_budget);
  tx_ring->next_to_clean = i;
  ...>
  }

@ received_page @
identifier rx_ring, rx_buffer, pgcnt;
expression size, dir, attrs;
@@
+ /* Packets and pages that left the receive ring in a poll and wait for the flush. */
+ struct igb_left {
+ 	struct list_head packets;
+ 	unsigned int count;
+ 	struct page *pages[NAPI_POLL_WEIGHT];
+ };
+
+ static void igb_flush_left(struct igb_ring *rx_ring, struct igb_left *left)
+ {
+ 	xsmmu_flush(rx_ring->dev);
+ 	while (left->count)
+ 		put_page(left->pages[--left->count]);
+ }
+
  igb_put_rx_buffer(struct igb_ring *rx_ring,
- 	struct igb_rx_buffer *rx_buffer, int pgcnt
+ 	struct igb_rx_buffer *rx_buffer, int pgcnt, struct igb_left *left
  )
  {
  <...
+ if (left->count == ARRAY_SIZE(left->pages))
+ 	igb_flush_left(rx_ring, left);
+ get_page(rx_buffer->page);
+ left->pages[left->count++] = rx_buffer->page;
- dma_unmap_page_attrs(rx_ring->dev, rx_buffer->dma, size, dir, attrs);
+ xsmmu_unmap_page_attrs_deferred(rx_ring->dev, rx_buffer->dma, size, dir, attrs);
  ...>
  }

@ received_packet @
identifier q_vector, rx_ring, rx_buffer, pgcnt;
identifier packet;
iterator name list_for_each_entry_safe;
@@
+ static void igb_hand_on(struct napi_struct *napi, struct igb_left *left)
+ {
+ 	struct sk_buff *skb;
+ 	struct sk_buff *next;
+
+ 	list_for_each_entry_safe(skb, next, &left->packets, list) {
+ 		skb_list_del_init(skb);
+ 		napi_gro_receive(napi, skb);
+ 	}
+ }
+
  igb_clean_rx_irq(struct igb_q_vector *q_vector, const int budget)
  {
+ struct igb_left left;
  ...
+ left.count = 0;
+ INIT_LIST_HEAD(&left.packets);
  while (...) {
  ...
- igb_put_rx_buffer(rx_ring, rx_buffer, pgcnt);
+ igb_put_rx_buffer(rx_ring, rx_buffer, pgcnt, &left);
+ if (IS_ERR(packet))
+ 	igb_flush_left(rx_ring, &left);
  ...
- napi_gro_receive(&q_vector->napi, packet);
+ list_add_tail(&packet->list, &left.packets);
  ...
  }
  ...
  rx_ring->skb = packet;
+ igb_flush_left(rx_ring, &left);
+ igb_hand_on(&q_vector->napi, &left);
  ...
  }

@ refilled_page @
expression dev, page, offset, size, dir, attrs;
@@
  igb_alloc_mapped_page(...)
  {
  <...
- dma_map_page_attrs(dev, page, offset, size, dir, attrs)
+ xsmmu_map_page_attrs_unflushed(dev, page, offset, size, dir, attrs)
  ...>
  }

@ refilled @
identifier rx_ring, count;
@@
  igb_alloc_rx_buffers(struct igb_ring *rx_ring, u16 count)
  {
  <...
+ xsmmu_flush_maps(rx_ring->dev);
  dma_wmb();
  ...>
  }

@ sending_single @
expression dev, memory, size, dir;
@@
  igb_tx_map(...)
  {
  <...
- dma_map_single(dev, memory, size, dir)
+ xsmmu_map_single_unflushed(dev, memory, size, dir)
  ...>
  }

@ sending_page @
expression dev, frag, size, dir;
@@
  igb_tx_map(...)
  {
  <...
- skb_frag_dma_map(dev, frag, 0, size, dir)
+ xsmmu_map_page_unflushed(dev, skb_frag_page(frag), skb_frag_off(frag), size, dir)
  ...>
  }

@ sending @
identifier tx_ring;
@@
  igb_tx_map(struct igb_ring *tx_ring, ...)
  {
  <...
+ xsmmu_flush_maps(tx_ring->dev);
  dma_wmb();
  ...>
  }
