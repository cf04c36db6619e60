/*-------------------------------------------------------------------------
 *
 * medium.h
 *	  What the files of t/medium share.  See main.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef MEDIUM_H
#define MEDIUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sofort/pmem/shadow_log.h"

/* What becomes of the lines that were stored and not durable at a cut */
typedef enum Survival
{
	SURVIVES_NONE = 0,
	SURVIVES_HALF,				/* of each what it held at some moment since */
	SURVIVES_TORN,				/* the same, or something between two moments */
	SURVIVES_ALL,
	SURVIVALS,
	SURVIVES_LATER = SURVIVALS	/* all; also what was stored to a line after the
								 * drain that was left out should have had it */
} Survival;

extern const char *const survival_name[SURVIVALS + 1];

/* image.c: the medium at any point of the log */
typedef struct Cut
{
	uint64_t	drain;			/* number of the drain, from 1 */
	uint64_t	position;		/* end of what had happened, in the log */
	uint64_t	wal_flushed;
	uint64_t	wal_written;
	const void *control;		/* contents of sofort.control, or NULL */
	size_t		control_size;
} Cut;

extern const ShadowHeader *log_open(const char *path);
extern const ShadowSite *log_site(uint32_t site);
extern uint64_t log_last_drain(void);
extern void image_load(const char *pool);
extern void image_restart(void);
extern bool image_next_drain(Cut *cut, bool before);
extern void image_cut_early(uint64_t seed);
extern unsigned image_differing(void);
extern uint64_t image_lost_lines(uint64_t *age);
extern void image_flushes_open(bool *open);
extern const char *log_site_name(uint32_t site);
extern void image_write(const char *path, Survival survival, uint64_t seed);

/* history.c: what a line has held since it was durable */
extern void history_clear(void);
extern bool history_add(uint64_t line, uint64_t at, const uint64_t *word, bool gap);
extern bool history_durable(uint64_t line, uint64_t at);
extern void history_pick(uint64_t line, bool torn, uint64_t *random, char *to);

/* A call that is left out: "file:line:flush" or "file:line:drain"; NULL: none.
 * Or one flush in every so many. */
extern bool image_leave_out(const char *call);
extern void image_leave_out_every(unsigned every, uint64_t seed);
extern char **log_calls(int *n);	/* names of all, without duplicates */
extern uint64_t log_calls_made(const char *call);

/* datadir.c */
extern void datadir_prepare(const char *base, const char *work);
extern void datadir_restore(void);
extern void datadir_set_wal(const char *wal_dir, uint64_t end);
extern void datadir_set_control(const void *control, size_t size);

/* server.c */
extern void server_configure(const char *bindir, const char *data, const char *pool,
							 const char *socket_dir);
extern void server_stop_at(const char *point);
extern bool server_start(const char *log_path, const char *shadow_log);
extern void server_kill(void);
extern void server_stop(void);
extern bool server_connect(void);
extern void server_disconnect(void);
extern bool server_running(void);
extern char *server_query(const char *sql, char *error, size_t error_size);
extern const char *server_conninfo(void);
extern const char *server_log_tail(void);
extern int	server_log_has(const char *words);

/* record.c, clients.c, check.c */
extern int	record_script(const char *server, const char *log, const char *path, FILE *out);
extern int	record_main(int argc, char **argv);
extern int	clients_main(int argc, char **argv);
extern int	again_main(int argc, char **argv);
extern int	enumerate_main(int argc, char **argv);
extern int	kills_main(int argc, char **argv);
extern int	calls_main(int argc, char **argv);

extern void die(const char *fmt,...) __attribute__((format(printf, 1, 2), noreturn));
extern char *print(const char *fmt,...) __attribute__((format(printf, 1, 2)));
extern void *allocate(size_t size);
extern void *reallocate(void *p, size_t size);
extern char *read_whole(const char *path, size_t *size);
extern uint64_t random_next(uint64_t *state);
extern double now(void);

#endif							/* MEDIUM_H */
