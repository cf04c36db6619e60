/*-------------------------------------------------------------------------
 *
 * compiler.c
 *	  What code compiled with gcc's -fsanitize=thread calls, in place of its library.
 *
 * That library looks at threads of one process; here processes share memory.  Each
 * function is called before the access, or makes it, if it is atomic.  The order that an
 * atomic operation asks for is taken to be the strictest.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "races.h"

#define PLAIN(size) \
	extern void __tsan_read##size(void *p); \
	extern void __tsan_write##size(void *p); \
	extern void __tsan_unaligned_read##size(void *p); \
	extern void __tsan_unaligned_write##size(void *p); \
	void __tsan_read##size(void *p) { races_access(p, size, PLAIN_READ, RACES_CALLER); } \
	void __tsan_write##size(void *p) { races_access(p, size, PLAIN_WRITE, RACES_CALLER); } \
	void __tsan_unaligned_read##size(void *p) { races_access(p, size, PLAIN_READ, RACES_CALLER); } \
	void __tsan_unaligned_write##size(void *p) { races_access(p, size, PLAIN_WRITE, RACES_CALLER); }

PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

extern void __tsan_read_range(void *p, Size size);
extern void __tsan_write_range(void *p, Size size);

void
__tsan_read_range(void *p, Size size)
{
	races_access(p, size, PLAIN_READ, RACES_CALLER);
}

void
__tsan_write_range(void *p, Size size)
{
	races_access(p, size, PLAIN_WRITE, RACES_CALLER);
}

/* ---- volatile: x86 makes such a load acquire, and such a store release ---- */

static void
volatile_read(void *p, Size size, void *caller)
{
	if (!races_is_watched(p))
		return;
	races_access(p, size, VOLATILE_READ, caller);
	races_acquire_later(p);
}

static void
volatile_write(void *p, Size size, void *caller)
{
	if (!races_is_watched(p))
		return;
	races_access(p, size, VOLATILE_WRITE, caller);
	races_release(p);
}

#define VOLATILE(size) \
	extern void __tsan_volatile_read##size(void *p); \
	extern void __tsan_volatile_write##size(void *p); \
	extern void __tsan_unaligned_volatile_read##size(void *p); \
	extern void __tsan_unaligned_volatile_write##size(void *p); \
	void __tsan_volatile_read##size(void *p) { volatile_read(p, size, RACES_CALLER); } \
	void __tsan_volatile_write##size(void *p) { volatile_write(p, size, RACES_CALLER); } \
	void __tsan_unaligned_volatile_read##size(void *p) { volatile_read(p, size, RACES_CALLER); } \
	void __tsan_unaligned_volatile_write##size(void *p) { volatile_write(p, size, RACES_CALLER); }

VOLATILE(1)
VOLATILE(2)
VOLATILE(4)
VOLATILE(8)
VOLATILE(16)

/* ---- atomic ---- */

static void
before_atomic(const volatile void *p, Size size, void *caller)
{
	if (!races_is_watched(p))
		return;
	races_access(p, size, ATOMIC_WRITE, caller);
	races_release(p);
}

static void
after_atomic(const volatile void *p)
{
	if (races_is_watched(p))
		races_acquire(p);
}

#define FETCH(bits, operation) \
	extern uint##bits __tsan_atomic##bits##_fetch_##operation(volatile uint##bits *p, uint##bits v, int order); \
	uint##bits \
	__tsan_atomic##bits##_fetch_##operation(volatile uint##bits *p, uint##bits v, int order) \
	{ \
		uint##bits	old; \
		before_atomic(p, bits / 8, RACES_CALLER); \
		old = __atomic_fetch_##operation(p, v, __ATOMIC_SEQ_CST); \
		after_atomic(p); \
		return old; \
	}

#define COMPARE_EXCHANGE(bits, strength) \
	extern int	__tsan_atomic##bits##_compare_exchange_##strength(volatile uint##bits *p, uint##bits *expected, \
																  uint##bits v, int order, int otherwise); \
	int \
	__tsan_atomic##bits##_compare_exchange_##strength(volatile uint##bits *p, uint##bits *expected, \
													  uint##bits v, int order, int otherwise) \
	{ \
		bool		done; \
		before_atomic(p, bits / 8, RACES_CALLER); \
		done = __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
		after_atomic(p); \
		return done; \
	}

#define ATOMIC(bits) \
	extern uint##bits __tsan_atomic##bits##_load(const volatile uint##bits *p, int order); \
	extern void __tsan_atomic##bits##_store(volatile uint##bits *p, uint##bits v, int order); \
	extern uint##bits __tsan_atomic##bits##_exchange(volatile uint##bits *p, uint##bits v, int order); \
	extern uint##bits __tsan_atomic##bits##_compare_exchange_val(volatile uint##bits *p, uint##bits expected, \
																 uint##bits v, int order, int otherwise); \
	uint##bits \
	__tsan_atomic##bits##_load(const volatile uint##bits *p, int order) \
	{ \
		uint##bits	v; \
		races_access(p, bits / 8, ATOMIC_READ, RACES_CALLER); \
		v = __atomic_load_n(p, __ATOMIC_SEQ_CST); \
		after_atomic(p); \
		return v; \
	} \
	void \
	__tsan_atomic##bits##_store(volatile uint##bits *p, uint##bits v, int order) \
	{ \
		before_atomic(p, bits / 8, RACES_CALLER); \
		__atomic_store_n(p, v, __ATOMIC_SEQ_CST); \
	} \
	uint##bits \
	__tsan_atomic##bits##_exchange(volatile uint##bits *p, uint##bits v, int order) \
	{ \
		uint##bits	old; \
		before_atomic(p, bits / 8, RACES_CALLER); \
		old = __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); \
		after_atomic(p); \
		return old; \
	} \
	uint##bits \
	__tsan_atomic##bits##_compare_exchange_val(volatile uint##bits *p, uint##bits expected, \
											   uint##bits v, int order, int otherwise) \
	{ \
		before_atomic(p, bits / 8, RACES_CALLER); \
		__atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
		after_atomic(p); \
		return expected; \
	} \
	FETCH(bits, add) \
	FETCH(bits, sub) \
	FETCH(bits, and) \
	FETCH(bits, or) \
	FETCH(bits, xor) \
	COMPARE_EXCHANGE(bits, strong) \
	COMPARE_EXCHANGE(bits, weak)

ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

extern void __tsan_init(void);
extern void __tsan_atomic_thread_fence(int order);
extern void __tsan_atomic_signal_fence(int order);

/* by each object when it is loaded */
void
__tsan_init(void)
{
}

void
__tsan_atomic_thread_fence(int order)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void
__tsan_atomic_signal_fence(int order)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}
