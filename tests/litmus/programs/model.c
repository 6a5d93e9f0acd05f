// SPDX-License-Identifier: GPL-2.0-only
/* Tests of the explorer's own model: known shapes, with all allowed outcomes. */
#include "programs.h"

static u64 x, y, z;
static u32 a, b, c, d;

#define THREADS(...)	.threads = { __VA_ARGS__ }
#define PROGRAM(name_, threads_, finish_, expect_)			\
	static const struct ex_program name_ = {			\
		.name = #name_, .threads = threads_, .finish = finish_,	\
		.expect = expect_, .dependent = true			\
	}
#define T(...)		{ __VA_ARGS__ }

static void out_ab(void) { ex_outcome("%u%u", a, b); }
static void out_xy(void) { ex_outcome("%u%u", (u32)x, (u32)y); }
static void out_ax(void) { ex_outcome("%u%u", a, (u32)x); }
static void out_abcd(void) { ex_outcome("%u%u%u%u", a, b, c, d); }

/* Results are private to their thread until the end. */
#define RESULT(name, value)	(name = (u32)(value))

static void sb1(void) { xs_store(&x, 1); RESULT(a, xs_load(&y)); }
static void sb2(void) { xs_store(&y, 1); RESULT(b, xs_load(&x)); }
PROGRAM(sb, T(sb1, sb2), out_ab, "00 01 10 11");

static void sbf1(void) { xs_store(&x, 1); xs_mb(); RESULT(a, xs_load(&y)); }
static void sbf2(void) { xs_store(&y, 1); xs_mb(); RESULT(b, xs_load(&x)); }
PROGRAM(sb_mb, T(sbf1, sbf2), out_ab, "01 10 11");
PROGRAM(sb_one_mb, T(sbf1, sb2), out_ab, "00 01 10 11");

static void sbr1(void) { xs_a64_swap(&x, 1); RESULT(a, xs_load(&y)); }
static void sbr2(void) { xs_a64_swap(&y, 1); RESULT(b, xs_load(&x)); }
PROGRAM(sb_swap, T(sbr1, sbr2), out_ab, "01 10 11");

static void sba1(void) { xs_store_release(&x, 1); RESULT(a, xs_load_acquire(&y)); }
static void sba2(void) { xs_store_release(&y, 1); RESULT(b, xs_load_acquire(&x)); }
PROGRAM(sb_rel_acq, T(sba1, sba2), out_ab, "00 01 10 11");

static void mp1(void) { xs_store(&x, 1); xs_store(&y, 1); }
static void mp2(void) { RESULT(a, xs_load(&y)); RESULT(b, xs_load(&x)); }
static void mpr1(void) { xs_store(&x, 1); xs_store_release(&y, 1); }
static void mpa2(void) { RESULT(a, xs_load_acquire(&y)); RESULT(b, xs_load(&x)); }
PROGRAM(mp, T(mp1, mp2), out_ab, "00 01 10 11");
PROGRAM(mp_release, T(mpr1, mp2), out_ab, "00 01 10 11");
PROGRAM(mp_acquire, T(mp1, mpa2), out_ab, "00 01 10 11");
PROGRAM(mp_both, T(mpr1, mpa2), out_ab, "00 01 11");

static void w1(void) { xs_store(&x, 1); xs_store(&y, 2); }
static void w2(void) { xs_store(&y, 1); xs_store(&x, 2); }
static void wr1(void) { xs_store(&x, 1); xs_store_release(&y, 2); }
static void wr2(void) { xs_store(&y, 1); xs_store_release(&x, 2); }
static void wm1(void) { xs_store(&x, 1); xs_mb(); xs_store(&y, 2); }
static void wm2(void) { xs_store(&y, 1); xs_mb(); xs_store(&x, 2); }
PROGRAM(w22, T(w1, w2), out_xy, "11 12 21 22");
PROGRAM(w22_release, T(wr1, wr2), out_xy, "11 12 21 22");
PROGRAM(w22_mb, T(wm1, wm2), out_xy, "12 21 22");

static void s1(void) { xs_store(&x, 2); xs_store(&y, 1); }
static void sr1(void) { xs_store(&x, 2); xs_store_release(&y, 1); }
static void s2(void) { RESULT(a, xs_load_acquire(&y)); xs_store(&x, 1); }
PROGRAM(s, T(s1, s2), out_ax, "01 02 11 12");
PROGRAM(s_both, T(sr1, s2), out_ax, "01 02 11");

static void r1(void) { xs_store(&x, 1); xs_mb(); xs_store(&y, 1); }
static void r2(void) { xs_store(&y, 2); xs_mb(); RESULT(a, xs_load(&x)); }
static void out_ay(void) { ex_outcome("%u%u", a, (u32)y); }
PROGRAM(r_mb, T(r1, r2), out_ay, "01 11 12");

/* Load buffering is not in the model: 11 is missing, and a hazard is found. */
static void lb1(void) { RESULT(a, xs_load(&x)); xs_store(&y, 1); }
static void lb2(void) { RESULT(b, xs_load(&y)); xs_store(&x, 1); }
PROGRAM(lb, T(lb1, lb2), out_ab, "00 01 10");

static void i1(void) { xs_store(&x, 1); }
static void i2(void) { xs_store(&y, 1); }
static void i3(void) { RESULT(a, xs_load_acquire(&x)); RESULT(b, xs_load_acquire(&y)); }
static void i4(void) { RESULT(c, xs_load_acquire(&y)); RESULT(d, xs_load_acquire(&x)); }
static void im3(void) { RESULT(a, xs_load(&x)); xs_mb(); RESULT(b, xs_load(&y)); }
static void im4(void) { RESULT(c, xs_load(&y)); xs_mb(); RESULT(d, xs_load(&x)); }
#define IRIW "0000 0001 0010 0011 0100 0101 0110 0111 1000 1001 "
/* As C11 and Power; arm64 forbids 1010, too: all threads see a store at once. */
PROGRAM(iriw, T(i1, i2, i3, i4), out_abcd, IRIW "1010 1011 1100 1101 1110 1111");
PROGRAM(iriw_mb, T(i1, i2, im3, im4), out_abcd, IRIW "1011 1100 1101 1110 1111");

static void co1(void) { xs_store(&x, 1); xs_store(&x, 2); }
static void co2(void) { RESULT(a, xs_load(&x)); RESULT(b, xs_load(&x)); }
PROGRAM(coherence, T(co1, co2), out_ab, "00 01 02 11 12 22");

/* Write-to-read causality: two steps of release and acquire, or one relaxed step. */
static void wrc1(void) { xs_store(&x, 1); }
static void wrc2(void) { RESULT(a, xs_load(&x)); xs_store_release(&y, 1); }
static void wrc3(void) { RESULT(b, xs_load_acquire(&y)); RESULT(c, xs_load(&x)); }
static void out_abc(void) { ex_outcome("%u%u%u", a, b, c); }
PROGRAM(wrc, T(wrc1, wrc2, wrc3), out_abc, "000 001 010 011 100 101 111");

/* A release passed on through other threads' read-modify-writes stays effective. */
static void h1(void) { z = 7; xs_store_release(&x, 1); }
static void h2(void) { RESULT(a, xs_a64_or(&x, 2)); }
static void h3(void) { RESULT(b, xs_load_acquire(&x)); if (b & 1) RESULT(c, z); }
PROGRAM(handover, T(h1, h2, h3), out_abc, "000 017 020 100 117 137");

/* Two takers, one winner. */
static void t1(void) { u64 old = 0; RESULT(a, xs_a64_try(&x, &old, 1)); }
static void t2(void) { u64 old = 0; RESULT(b, xs_a64_try(&x, &old, 2)); }
PROGRAM(take, T(t1, t2), out_ab, "01 10");

static void add1(void) { ex_rmw(&x, 8, EX_ADD, 1, EX_SITE(EX_RELAXED, "add")); }
static void out_x(void) { ex_outcome("%u", (u32)x); }
PROGRAM(add, T(add1, add1, add1), out_x, "3");

/* Either the section sees the change, or the grace period waits for the end of the section. */
#define GRACE()	ex_grace(EX_SITE(EX_FULL, "grace"))
static void g1(void) { xs_store(&x, 1); GRACE(); RESULT(b, xs_load(&y)); }
static void g2(void) { xs_enter(); RESULT(a, xs_load(&x)); xs_store(&y, 1); xs_exit(); }
PROGRAM(grace, T(g1, g2), out_ab, "01 10 11");

/* Programs that must fail. */
static const struct ex_program lb_hazard = {
	.name = "lb_hazard", .threads = { lb1, lb2 }, .fails = "HAZARD"
};

/* An acquire on one side and a release on the other side suffice, although they do not pair. */
static void lba1(void) { RESULT(a, xs_load_acquire(&x)); xs_store(&y, 1); }
static void lbr2(void) { RESULT(b, xs_load(&y)); xs_store_release(&x, 1); }
static const struct ex_program lb_kept = {
	.name = "lb_kept", .threads = { lba1, lbr2 }, .finish = out_ab,
	.expect = "00 01 10"
};

static void d1(void) { z = 1; xs_store(&x, 1); }
static void dr1(void) { z = 1; xs_store_release(&x, 1); }
static void d2(void) { if (xs_load(&x)) RESULT(a, z); }
static void da2(void) { if (xs_load_acquire(&x)) RESULT(a, z); }
static const struct ex_program race = {
	.name = "race", .threads = { d1, da2 }, .fails = "DATA RACE"
};
static const struct ex_program race_acquire = {
	.name = "race_acquire", .threads = { dr1, d2 }, .fails = "DATA RACE"
};
PROGRAM(no_race, T(dr1, da2), NULL, NULL);

static xs_lock_t la, lb_;
static void lock_both(xs_lock_t *first, xs_lock_t *second)
{
	xs_flags_t flags = xs_lock_irqsave(first);

	xs_lock(second);
	xs_unlock(second);
	xs_unlock_irqrestore(first, flags);
}

static void dl1(void) { lock_both(&la, &lb_); }
static void dl2(void) { lock_both(&lb_, &la); }
static const struct ex_program deadlock = {
	.name = "deadlock", .threads = { dl1, dl2 }, .fails = "DEADLOCK"
};

static void l1(void)
{
	xs_flags_t flags = xs_lock_irqsave(&la);

	z++;
	xs_unlock_irqrestore(&la, flags);
}
static void out_z(void) { ex_outcome("%u", (u32)z); }
PROGRAM(lock, T(l1, l1, l1), out_z, "3");

static u64 *memory;
static void new_memory(void) { memory = ex_alloc(64); }
static void f1(void) { xs_store(&x, 1); ex_free(memory, 64); }
static void f2(void) { xs_enter(); if (!xs_load(&x)) RESULT(a, memory[0]); xs_exit(); }
static void fg1(void) { xs_store(&x, 1); GRACE(); ex_free(memory, 64); }
static const struct ex_program freed = {
	.name = "freed", .setup = new_memory, .threads = { f1, f2 }, .fails = "T1 uses"
};
static const struct ex_program freed_later = {
	.name = "freed_later", .setup = new_memory, .threads = { fg1, f2 }
};

/* An interrupt comes at any point, ends before the thread continues, and is in order. */
static void ir1(void) { xs_store(&x, 1); xs_store(&x, 2); }
static void ii1(void) { RESULT(a, xs_load(&x)); }
static void ir2(void) { RESULT(b, xs_load(&x)); }
static const struct ex_program interrupt = {
	.name = "interrupt", .threads = { ir1, ir2 }, .interrupts = { ii1 }, .finish = out_ab,
	.expect = "00 01 02 10 11 12 20 21 22"
};

static void io1(void) { xs_flags_t flags = ex_irq_save(); ir1(); ex_irq_restore(flags); }
static const struct ex_program interrupts_off = {
	.name = "interrupts_off", .threads = { io1, ir2 }, .interrupts = { ii1 }, .finish = out_ab,
	.expect = "00 01 02 20 21 22"
};

static void il1(void) { xs_lock(&la); }
static const struct ex_program lock_with_interrupts = {
	.name = "lock_with_interrupts", .threads = { il1 },
	.fails = "tests/litmus/programs/model.c:"
};

const struct ex_program *const model_programs[] = {
	&interrupt, &interrupts_off, &lock_with_interrupts,
	&lb_hazard, &lb_kept, &race, &race_acquire, &no_race, &deadlock, &lock, &freed,
	&freed_later,
	&sb, &sb_mb, &sb_one_mb, &sb_swap, &sb_rel_acq, &mp, &mp_release,
	&mp_acquire, &mp_both, &w22, &w22_release, &w22_mb, &s, &s_both, &r_mb,
	&lb, &iriw, &iriw_mb, &coherence, &wrc, &handover, &take, &add, &grace,
	NULL
};
