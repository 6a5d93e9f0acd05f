// SPDX-License-Identifier: GPL-2.0-only
//
// e1000e: each half of a poll (transmit, receive) defers its unmaps, flushes once,
// and only then frees, recycles and hands on. With MSI-X the transmit half runs in
// an interrupt.
//
// Transmit: e1000_put_txbuf() unmaps and frees, also in teardown and for a packet
// that could not be mapped. So the loop only unmaps, without a flush. The packet
// stays in its slot of the ring; no slot is used again before next_to_clean moves
// on. After the flush a second walk calls e1000_put_txbuf(), which finds nothing
// left to unmap.
//
// Receive: packets wait on a list. Recycled buffers (small packets are copied, bad
// packets dropped) are mapped again after the flush. So the ring is refilled once,
// after the loop and before packets go to the stack. Frees inside the loop are
// rare, and each has a flush of its own.
//
// Maps: a refill moves the tail after every 16 buffers, and flushes its maps before
// each move. The buffers after the last 16 wait for a later refill, maybe on
// another CPU, so a refill also flushes at its end. A packet to send has a single
// flush.
//
// Error and teardown paths keep their ordinary unmaps, and so does
// e1000_clean_jumbo_rx_irq(). Only machines with pages of more than 16 KiB use
// that function; other machines split packets (_ps).

@ header @
@@
  #include "e1000.h"
+ #include <xsmmu/dma.h>

@ declare @
identifier pdev, ent;
@@
  e1000_probe(struct pci_dev *pdev, const struct pci_device_id *ent)
  {
  ...
  pci_set_master(pdev);
+ xsmmu_set_batch_aware(&pdev->dev);
  ...
  }

@ sent @
identifier tx_ring, buffer_info, i;
symbol false;
@@
+ static void e1000_unmap_sent(struct e1000_ring *tx_ring,
+ 			     struct e1000_buffer *buffer_info)
+ {
+ 	if (buffer_info->dma)
+ 		xsmmu_unmap_page_deferred(&tx_ring->adapter->pdev->dev,
+ 				       buffer_info->dma,
+ 				       buffer_info->length, DMA_TO_DEVICE);
+ 	buffer_info->dma = 0;
+ }
+
+ /* Flush, then free the unmapped packets in [next_to_clean, end). */
+ static void e1000_free_sent(struct e1000_ring *tx_ring, unsigned int end)
+ {
+ 	unsigned int i = tx_ring->next_to_clean;
+
+ 	xsmmu_flush(&tx_ring->adapter->pdev->dev);
+ 	while (i != end) {
+ 		e1000_put_txbuf(tx_ring, &tx_ring->buffer_info[i], false);
+ 		if (++i == tx_ring->count)
+ 			i = 0;
+ 	}
+ }
+
  e1000_clean_tx_irq(struct e1000_ring *tx_ring)
  {
  ... when any
  while (...) {
  <...
- e1000_put_txbuf(tx_ring, buffer_info, false);
+ e1000_unmap_sent(tx_ring, buffer_info);
  ...>
  }
+ e1000_free_sent(tx_ring, i);
  tx_ring->next_to_clean = i;
  ...
  }

@ received_packet @
identifier adapter, netdev, skb, staterr, vlan;
typedef u32, __le16;
iterator name list_for_each_entry_safe;
@@
+ /* Hand the packets of a poll to the stack. Must run after their flush. */
+ static void e1000_hand_on(struct e1000_adapter *adapter,
+ 			  struct list_head *left)
+ {
+ 	struct sk_buff *skb;
+ 	struct sk_buff *next;
+
+ 	list_for_each_entry_safe(skb, next, left, list) {
+ 		skb_list_del_init(skb);
+ 		napi_gro_receive(&adapter->napi, skb);
+ 	}
+ }
+
  e1000_receive_skb(struct e1000_adapter *adapter, struct net_device *netdev, struct sk_buff *skb, u32 staterr,
- 	__le16 vlan
+ 	__le16 vlan, struct list_head *left
  )
  {
  ...
- napi_gro_receive(&adapter->napi, skb);
+ list_add_tail(&skb->list, left);
  }

@ received @
identifier clean = {e1000_clean_rx_irq, e1000_clean_rx_irq_ps, e1000_clean_jumbo_rx_irq};
identifier rx_ring, count;
expression unused;
statement refill;
@@
  clean(struct e1000_ring *rx_ring, ...)
  {
+ LIST_HEAD(left);
  ...
  rx_ring->next_to_clean = ...;
+ xsmmu_flush(&rx_ring->adapter->pdev->dev);
  count = unused;
  if (count) refill
+ e1000_hand_on(rx_ring->adapter, &left);
  ...
  }

@ received_kept @
identifier clean = {e1000_clean_rx_irq, e1000_clean_rx_irq_ps, e1000_clean_jumbo_rx_irq};
identifier adapter, netdev, skb, staterr;
expression vlan;
@@
  clean(...)
  {
  <...
- e1000_receive_skb(adapter, netdev, skb, staterr, vlan);
+ e1000_receive_skb(adapter, netdev, skb, staterr, vlan, &left);
  ...>
  }

@ received_single @
identifier clean = {e1000_clean_rx_irq, e1000_clean_rx_irq_ps};
expression dev, addr, size, dir;
@@
  clean(...)
  {
  <...
- dma_unmap_single(dev, addr, size, dir);
+ xsmmu_unmap_single_deferred(dev, addr, size, dir);
  ...>
  }

@ received_page @
expression dev, addr, size, dir;
@@
  e1000_clean_rx_irq_ps(...)
  {
  <...
- dma_unmap_page(dev, addr, size, dir);
+ xsmmu_unmap_page_deferred(dev, addr, size, dir);
  ...>
  }

@ refilled_once @
identifier clean = {e1000_clean_rx_irq, e1000_clean_rx_irq_ps};
identifier adapter, rx_ring, count;
@@
  clean(...)
  {
  <...
- if (count >= E1000_RX_BUFFER_WRITE) {
- 	adapter->alloc_rx_buf(rx_ring, count, GFP_ATOMIC);
- 	count = 0;
- }
  ...>
  }

// pskb_trim() frees a page that holds nothing but a part of the checksum.
@ received_freed @
identifier rx_ring;
expression skb, size;
@@
  e1000_clean_rx_irq_ps(struct e1000_ring *rx_ring, ...)
  {
  <...
(
+ xsmmu_flush(&rx_ring->adapter->pdev->dev);
  dev_kfree_skb_irq(skb);
|
+ xsmmu_flush(&rx_ring->adapter->pdev->dev);
  pskb_trim(skb, size);
)
  ...>
  }

@ refilled_single @
identifier refill = {e1000_alloc_rx_buffers, e1000_alloc_rx_buffers_ps};
expression dev, memory, size, dir;
@@
  refill(...)
  {
  <...
- dma_map_single(dev, memory, size, dir)
+ xsmmu_map_single_unflushed(dev, memory, size, dir)
  ...>
  }

@ refilled_page @
expression dev, page, offset, size, dir;
@@
  e1000_alloc_rx_buffers_ps(...)
  {
  <...
- dma_map_page(dev, page, offset, size, dir)
+ xsmmu_map_page_unflushed(dev, page, offset, size, dir)
  ...>
  }

@ refilled @
identifier refill = {e1000_alloc_rx_buffers, e1000_alloc_rx_buffers_ps};
identifier rx_ring, i;
@@
  refill(struct e1000_ring *rx_ring, ...)
  {
  <...
(
+ xsmmu_flush_maps(&rx_ring->adapter->pdev->dev);
  wmb();
|
+ xsmmu_flush_maps(&rx_ring->adapter->pdev->dev);
  rx_ring->next_to_use = i;
)
  ...>
  }

@ sending_single @
expression dev, memory, size, dir;
@@
  e1000_tx_map(...)
  {
  <...
- dma_map_single(dev, memory, size, dir)
+ xsmmu_map_single_unflushed(dev, memory, size, dir)
  ...>
  }

@ sending_page @
expression dev, frag, offset, size, dir;
@@
  e1000_tx_map(...)
  {
  <...
- skb_frag_dma_map(dev, frag, offset, size, dir)
+ xsmmu_map_page_unflushed(dev, skb_frag_page(frag), skb_frag_off(frag) + offset, size, dir)
  ...>
  }

@ sending @
identifier tx_ring, segs;
expression gso;
@@
  e1000_tx_map(struct e1000_ring *tx_ring, ...)
  {
  <...
+ xsmmu_flush_maps(&tx_ring->adapter->pdev->dev);
  segs = gso ? : 1;
  ...>
  }
