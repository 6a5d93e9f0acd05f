/* SPDX-License-Identifier: GPL-2.0-only */
/* Pages on the way from one CPU to another. */
#ifndef NATIVE_MAILBOX_H
#define NATIVE_MAILBOX_H

#include "platform_native.h"

#define MAILBOX_IOVAS	4096u

/**
 * struct mailbox - pages that one CPU hands to another CPU
 * @sent: number of pages that the sender has written
 * @taken: number of pages that the receiver has read
 * @iovas: a ring
 */
struct mailbox {
	u64 sent;
	u64 taken NATIVE_LINE;
	u64 iovas[MAILBOX_IOVAS] NATIVE_LINE;
} NATIVE_LINE;

/* Hands a page over; false if the mailbox is full. */
static inline bool mailbox_send(struct mailbox *mailbox, u64 iova)
{
	if (mailbox->sent - xs_load_acquire(&mailbox->taken) == MAILBOX_IOVAS)
		return false;
	mailbox->iovas[mailbox->sent % MAILBOX_IOVAS] = iova;
	xs_store_release(&mailbox->sent, mailbox->sent + 1);
	return true;
}

/* Takes the next page; false if there is none. */
static inline bool mailbox_take(struct mailbox *mailbox, u64 *iova)
{
	if (xs_load_acquire(&mailbox->sent) == mailbox->taken)
		return false;
	*iova = mailbox->iovas[mailbox->taken % MAILBOX_IOVAS];
	xs_store_release(&mailbox->taken, mailbox->taken + 1);
	return true;
}

#endif
