// SPDX-License-Identifier: GPL-2.0-only
//
// mlx5_core: a poll of transmit completions defers its unmaps, flushes once, and
// only then frees the packets.
//
// Packets wait in an array of MLX5E_TX_CQ_POLL_BUDGET, with a flush each time the
// array is full. A list does not work, because a packet can be sent several times
// at once (pktgen). Time stamps of packets are taken at the same place as in the
// stock driver.
//
// Receive is unchanged. The page pool (PP_FLAG_DMA_MAP), not the driver, maps and
// unmaps receive pages. These unmaps, and the unmaps of XDP and kTLS, are ordinary
// and flushed at once.

@ header @
@@
  #include "en_accel/en_accel.h"
+ #include <xsmmu/dma.h>

@ header_of_main @
@@
  #include "mlx5_core.h"
+ #include <xsmmu/dma.h>

@ declare @
identifier dev, pdev, id;
expression value;
@@
  mlx5_pci_init(struct mlx5_core_dev *dev, struct pci_dev *pdev, const struct pci_device_id *id)
  {
  <...
  value = set_dma_caps(pdev);
+ xsmmu_set_batch_aware(&pdev->dev);
  ...>
  }

@ unmap @
identifier sq, sent;
@@
  mlx5e_tx_wi_dma_unmap(struct mlx5e_txqsq *sq, ...)
  {
  <...
- mlx5e_tx_dma_unmap(sq->pdev, sent);
+ xsmmu_unmap_page_deferred(sq->pdev, sent->addr, sent->size, DMA_TO_DEVICE);
  ...>
  }

@ teardown @
identifier sq;
expression list arguments;
@@
  mlx5e_free_txqsq_descs(struct mlx5e_txqsq *sq)
  {
  <...
  mlx5e_tx_wi_dma_unmap(arguments);
+ xsmmu_flush(sq->pdev);
  ...>
  }

@ packet @
identifier sq, skb, cqe, budget;
@@
+ /* Unmapped packets that wait for the flush. */
+ struct mlx5e_unmapped {
+ 	unsigned int count;
+ 	struct sk_buff *skbs[MLX5E_TX_CQ_POLL_BUDGET];
+ };
+
+ static void mlx5e_free_unmapped(struct mlx5e_txqsq *sq,
+ 				struct mlx5e_unmapped *unmapped,
+ 				int napi_budget)
+ {
+ 	unsigned int i;
+
+ 	xsmmu_flush(sq->pdev);
+ 	for (i = 0; i < unmapped->count; i++)
+ 		napi_consume_skb(unmapped->skbs[i], napi_budget);
+ 	unmapped->count = 0;
+ }
+
  mlx5e_consume_skb(struct mlx5e_txqsq *sq, struct sk_buff *skb, struct mlx5_cqe64 *cqe,
- 	int budget
+ 	struct mlx5e_unmapped *unmapped, int budget
  )
  {
  ...
- napi_consume_skb(skb, budget);
+ if (unmapped->count == ARRAY_SIZE(unmapped->skbs))
+ 	mlx5e_free_unmapped(sq, unmapped, budget);
+ unmapped->skbs[unmapped->count++] = skb;
  }

@ fifo_packets @
identifier sq, wi, cqe, budget, skb;
@@
  mlx5e_tx_wi_consume_fifo_skbs(struct mlx5e_txqsq *sq, struct mlx5e_tx_wqe_info *wi, struct mlx5_cqe64 *cqe,
- 	int budget
+ 	struct mlx5e_unmapped *unmapped, int budget
  )
  {
  <...
- mlx5e_consume_skb(sq, skb, cqe, budget);
+ mlx5e_consume_skb(sq, skb, cqe, unmapped, budget);
  ...>
  }

@ poll @
identifier sq, wi, cqe, cq, budget;
@@
  mlx5e_poll_tx_cq(struct mlx5e_cq *cq, int budget)
  {
+ struct mlx5e_unmapped unmapped;
  ...
  sq = container_of(...);
+ unmapped.count = 0;
  <...
(
- mlx5e_consume_skb(sq, wi->skb, cqe, budget);
+ mlx5e_consume_skb(sq, wi->skb, cqe, &unmapped, budget);
|
- mlx5e_tx_wi_consume_fifo_skbs(sq, wi, cqe, budget);
+ mlx5e_tx_wi_consume_fifo_skbs(sq, wi, cqe, &unmapped, budget);
|
+ mlx5e_free_unmapped(sq, &unmapped, budget);
  sq->dma_fifo_cc = ...;
)
  ...>
  }
