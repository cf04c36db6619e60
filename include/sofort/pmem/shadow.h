/*-------------------------------------------------------------------------
 *
 * shadow.h
 *	  The shadow medium: in a build with SOFORT_SHADOW_MEDIUM every call of
 *	  persist.h is a numbered site, and is recorded while the environment of
 *	  the postmaster names a file in SOFORT_SHADOW_LOG.  From the record a test
 *	  makes the images that a power cut could have left (t/medium.c).
 *
 * In any other build there is nothing of this.  Included by persist.h only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PMEM_SHADOW_H
#define SOFORT_PMEM_SHADOW_H

#ifdef SOFORT_SHADOW_MEDIUM

#include "sofort/pmem/shadow_log.h"

/* A call in the sources; the linker gathers pointers to all in one array. */
typedef struct ShadowCall
{
	const char *file;
	const char *function;
	uint32		line;
	uint32		kind;			/* ShadowKind */
	uint32		number;			/* set by the postmaster */
} ShadowCall;

#define SHADOW_SITE(what) \
	({ \
		static ShadowCall shadow_call_ = \
			{.file = __FILE__, .function = __func__, .line = __LINE__, .kind = (what)}; \
		static ShadowCall *const shadow_call_address_ \
			__attribute__((section("sofort_calls"), used)) = &shadow_call_; \
		&shadow_call_; \
	})

extern void shadow_flush(const void *addr, Size len, ShadowCall *site);
extern void shadow_drain(ShadowCall *site);
extern void shadow_line_order(const void *addr);
extern void shadow_copy_nodrain(void *dst, const void *src, Size len, ShadowCall *site);
extern void shadow_drain_to_publish(ShadowCall *site);
extern void shadow_publish8(uint64 *addr, uint64 value, ShadowCall *flush, ShadowCall *drain);
extern void shadow_zero_nodrain(void *dst, Size len, ShadowCall *site);

/* The pool file is open and about to be changed; before libpmemobj has it. */
extern void shadow_begin(int fd);
extern void shadow_control_written(const void *control, Size len);

/* SOFORT_SHADOW_SLOW: drains are to count as slow (pm_drain_is_slow()). */
extern bool shadow_slow_drains(void);

static inline void
shadow_store8(uint64 *addr, uint64 value, ShadowCall *site)
{
	pg_write_barrier();
	shadow_line_order(addr);
	*(volatile uint64 *) addr = value;
	shadow_flush(addr, sizeof(uint64), site);
}

#ifndef SHADOW_IMPLEMENTATION
#define pm_flush(addr, len)		shadow_flush(addr, len, SHADOW_SITE(SHADOW_FLUSH))
#define pm_drain()				shadow_drain(SHADOW_SITE(SHADOW_DRAIN))
#define pm_line_order(addr)		shadow_line_order(addr)
#define pm_copy_nodrain(dst, src, len) \
	shadow_copy_nodrain(dst, src, len, SHADOW_SITE(SHADOW_FLUSH))
#define pm_zero_nodrain(dst, len) \
	shadow_zero_nodrain(dst, len, SHADOW_SITE(SHADOW_FLUSH))
#define pm_persist(addr, len)	(pm_flush(addr, len), pm_drain())
#define pm_store8(addr, value)	shadow_store8(addr, value, SHADOW_SITE(SHADOW_FLUSH))
#define pm_store8_persist(addr, value) \
	(pm_store8(addr, value), pm_drain())
#define pm_drain_to_publish()	shadow_drain_to_publish(SHADOW_SITE(SHADOW_DRAIN))
#define pm_publish8(addr, value) \
	shadow_publish8(addr, value, SHADOW_SITE(SHADOW_FLUSH), SHADOW_SITE(SHADOW_DRAIN))
#endif

#else							/* not SOFORT_SHADOW_MEDIUM */

#define shadow_begin(fd)						((void) 0)
#define shadow_control_written(control, len)	((void) 0)
#define shadow_slow_drains()					false

#endif

#endif							/* SOFORT_PMEM_SHADOW_H */
