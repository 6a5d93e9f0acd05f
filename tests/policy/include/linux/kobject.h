/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TEST_LINUX_KOBJECT_H
#define TEST_LINUX_KOBJECT_H

struct kobject;

#endif
