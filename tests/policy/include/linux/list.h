/* SPDX-License-Identifier: GPL-2.0-only */
/* Linux's lists, as far as kmod/policy uses them. */
#ifndef TEST_LINUX_LIST_H
#define TEST_LINUX_LIST_H

#include <linux/types.h>

#define LIST_HEAD(name)		struct list_head name = { &(name), &(name) }

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list->prev = list;
}

static inline void list_add(struct list_head *entry, struct list_head *head)
{
	entry->next = head->next;
	entry->prev = head;
	head->next->prev = entry;
	head->next = entry;
}

static inline void list_del(struct list_head *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
}

/* The list is the first member of each entry. */
#define list_for_each_entry(at, head, member) \
	for (at = (void *)(head)->next; &at->member != (head); \
	     at = (void *)at->member.next)
#define list_for_each_entry_safe(at, after, head, member) \
	for (at = (void *)(head)->next, after = (void *)at->member.next; \
	     &at->member != (head); at = after, after = (void *)at->member.next)

#endif
