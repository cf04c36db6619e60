/*-------------------------------------------------------------------------
 *
 * check.c
 *	  Starts servers from images and looks whether everything promised is there.
 *
 *	medium enumerate key=value ...
 *	medium calls key=value ...
 *
 * See main.c for the keys.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "medium.h"

typedef struct Step
{
	uint64_t	sent;
	uint64_t	acknowledged;
	uint64_t	wal_flushed;
	char	   *name;
	char	   *contents;
} Step;

static Step *step;
static int	nsteps;

/* Settings */
static const char *log_path,
		   *base_pool,
		   *base_data,
		   *wal_dir,
		   *steps_path,
		   *work,
		   *bindir,
		   *one_call;
static char *image_path;
static char *data_path;
static char *server_log;
static unsigned every = 1;
static unsigned offset = 0;
static bool rotate = false;
static unsigned deep_every = 4;
static unsigned parts = 1;
static unsigned part = 0;
static unsigned tries = 16;
static unsigned drop_every = 0;
static uint64_t seed = 1;
static uint64_t only_cut = 0;
static int	only_survival = -1;
static bool verbose = false;
static bool only_list = false;

static char problem[20000];
static unsigned images = 0;

/* ---- settings and steps ---- */

static void
set_option(const char *arg)
{
	const char *value = strchr(arg, '=');
	size_t		n = value != NULL ? (size_t) (value - arg) : 0;

#define IS(name) (n == strlen(name) && strncmp(arg, name, n) == 0)
	if (value == NULL)
		die("not key=value: %s", arg);
	value++;
	if (IS("log"))
		log_path = value;
	else if (IS("pool"))
		base_pool = value;
	else if (IS("data"))
		base_data = value;
	else if (IS("wal"))
		wal_dir = value;
	else if (IS("steps"))
		steps_path = value;
	else if (IS("work"))
		work = value;
	else if (IS("bin"))
		bindir = value;
	else if (IS("call"))
		one_call = value;
	else if (IS("every"))
		every = (unsigned) atoi(value);
	else if (IS("offset"))
		offset = (unsigned) atoi(value);
	else if (IS("rotate"))
		rotate = atoi(value) != 0;
	else if (IS("deep"))
		deep_every = (unsigned) atoi(value);
	else if (IS("parts"))
		parts = (unsigned) atoi(value);
	else if (IS("part"))
		part = (unsigned) atoi(value);
	else if (IS("tries"))
		tries = (unsigned) atoi(value);
	else if (IS("drop"))
		drop_every = (unsigned) atoi(value);
	else if (IS("seed"))
		seed = strtoull(value, NULL, 10);
	else if (IS("cut"))
		only_cut = strtoull(value, NULL, 10);
	else if (IS("survival"))
		only_survival = atoi(value);
	else if (IS("list"))
		only_list = atoi(value) != 0;
	else if (IS("verbose"))
		verbose = atoi(value) != 0;
	else
		die("unknown key: %s", arg);
#undef IS
}

static void
read_steps(void)
{
	char	   *text = read_whole(steps_path, NULL);
	char	   *line;
	char	   *save = NULL;

	for (line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save))
	{
		Step	   *s;
		unsigned long long sent,
					acknowledged,
					wal;
		int			at = 0;
		char	   *bar;

		if (sscanf(line, "%llu %llu %llu %n", &sent, &acknowledged, &wal, &at) < 3 || at == 0 ||
			(bar = strchr(line + at, '|')) == NULL)
			die("bad line in %s: %s", steps_path, line);
		*bar = '\0';
		step = realloc(step, sizeof(Step) * (nsteps + 1));
		s = &step[nsteps++];
		s->sent = sent;
		s->acknowledged = acknowledged;
		s->wal_flushed = wal;
		s->name = line + at;
		s->contents = bar + 1;
	}
	if (nsteps == 0)
		die("%s has no steps", steps_path);
}

static void
begin(int argc, char **argv)
{
	int			i;

	for (i = 1; i < argc; i++)
		set_option(argv[i]);
	if (!log_path || !base_pool || !base_data || !wal_dir || !steps_path || !work || !bindir)
		die("log, pool, data, wal, steps, work and bin are needed");
	work = realpath(work, NULL);
	if (work == NULL)
		die("the directory \"work\" does not exist");
	image_path = print("%s/image", work);
	data_path = print("%s/data", work);
	server_log = print("%s/server.log", work);
	read_steps();
	log_open(log_path);
	image_load(base_pool);
	datadir_prepare(base_data, data_path);
	server_configure(bindir, data_path, image_path, work);
}

/* ---- what must be there ---- */

static bool
complain(const char *what, const char *detail)
{
	snprintf(problem, sizeof(problem), "%s: %.*s", what, 16000, detail);
	return false;
}

static bool
ask(const char *sql, const char *expected)
{
	char		error[4000];
	char	   *answer = server_query(sql, error, sizeof(error));
	bool		ok;

	if (answer == NULL)
		return complain(sql, error);
	ok = expected == NULL || strcmp(answer, expected) == 0;
	if (!ok)
		complain(sql, answer);
	free(answer);
	return ok;
}

/* Which tables differ?  Both are words "table(columns)[indexes]=hash". */
static void
complain_contents(const Step *acknowledged, const Step *in_flight, char *found)
{
	char	   *differing = strdup("");
	char	   *save = NULL;
	char	   *word;

	for (word = strtok_r(strdup(found), " ", &save); word != NULL; word = strtok_r(NULL, " ", &save))
	{
		if (strstr(acknowledged->contents, word) == NULL)
			differing = print("%s %s", differing, word);
	}
	snprintf(problem, sizeof(problem),
			 "contents are neither those after \"%s\"%s%s%s; found:%.1500s\nexpected: %.3000s\n",
			 acknowledged->name, in_flight ? " nor those after \"" : "",
			 in_flight ? in_flight->name : "", in_flight ? "\"" : "",
			 differing[0] != '\0' ? differing : " (fewer tables)", acknowledged->contents);
	free(differing);
}

/*
 * Contents after the last step acknowledged at the cut, or after the one in
 * flight.  *state: the contents that it is.
 */
static bool
check_contents(const Cut *cut, const char **state)
{
	char		error[4000];
	const Step *last = NULL;
	const Step *next = NULL;
	char	   *found;
	int			i;

	for (i = 0; i < nsteps && step[i].acknowledged <= cut->position; i++)
		last = &step[i];
	if (i < nsteps && step[i].sent <= cut->position)
		next = &step[i];
	found = server_query("SELECT chk.contents()", error, sizeof(error));
	if (found == NULL)
		return complain("contents", error);
	if (strcmp(found, last->contents) == 0)
		*state = last->contents;
	else if (next != NULL && strcmp(found, next->contents) == 0)
		*state = next->contents;
	else
		complain_contents(last, next, found);
	free(found);
	return *state != NULL;
}

static bool
vacuum_all(void)
{
	char		error[4000];
	char	   *command = server_query("SELECT chk.vacuum_command()", error, sizeof(error));
	bool		ok;

	if (command == NULL)
		return complain("vacuum_command", error);
	ok = ask(command, NULL);
	free(command);
	return ok;
}

/* Every table can be written and vacuumed, and all space comes back. */
static bool
check_use(const char *state)
{
	return ask("SELECT chk.write()", "") &&
		ask("SELECT chk.contents()", state) &&
		vacuum_all() &&
		ask("SELECT chk.problems()", "") &&
		ask("SELECT chk.contents()", state) &&
		ask("SELECT chk.drop_all()", "") &&
		ask("SELECT chk.leaks()", "");
}

static const Step *
last_acknowledged(const Cut *cut)
{
	const Step *last = NULL;
	int			i;

	for (i = 0; i < nsteps && step[i].acknowledged <= cut->position; i++)
		last = &step[i];
	return last;
}

/*
 * One image: start, look, end.  False: something promised is missing, and
 * "problem" says what.
 */
static bool
check_image(const Cut *cut, Survival survival, uint64_t image_seed, bool deep)
{
	const Step *last = last_acknowledged(cut);
	uint64_t	wal = cut->wal_flushed;
	const char *state = NULL;
	bool		ok;

	if (survival != SURVIVES_NONE && cut->wal_written > wal && (image_seed & 1))
		wal = cut->wal_written;
	if (last->wal_flushed > wal)
		wal = last->wal_flushed;
	images++;
	image_write(image_path, survival, image_seed);
	datadir_restore();
	datadir_set_wal(wal_dir, wal);
	datadir_set_control(cut->control, cut->control_size);
	problem[0] = '\0';
	if (!server_start(server_log, NULL))
		ok = complain("the server does not start", server_log_tail());
	else
	{
		ok = check_contents(cut, &state) && ask("SELECT chk.problems()", "") &&
			(!deep || check_use(state));
		if (!server_running())
			ok = complain("the server died", server_log_tail());
	}
	server_kill();
	return ok;
}

static void
report(const Cut *cut, Survival survival, const char *what)
{
	printf("%s: cut=%llu survival=%s after \"%s\", %u lines open: %s\n", what,
		   (unsigned long long) cut->drain, survival_name[survival],
		   last_acknowledged(cut)->name, image_differing(), problem);
	fflush(stdout);
}

/* ---- enumerate ---- */

/*
 * Odd images: right after a drain, nothing else arrived.  Even ones: right
 * before it, and some or all of the lines on their way arrived.
 */
static bool
is_chosen(uint64_t drain, Survival survival)
{
	uint64_t	n = drain + offset;

	if (only_cut != 0)
		return drain == only_cut;
	if (n % every != 0 || (n / every) % parts != part)
		return false;
	return !rotate || (n / every / parts) % SURVIVALS == (unsigned) survival;
}

static unsigned
enumerate_survival(Survival survival)
{
	unsigned	bad = 0;
	unsigned	n = 0;
	Cut			cut;

	image_restart();
	if (drop_every != 0)
		image_leave_out_every(drop_every, seed);
	else
		image_leave_out(one_call);
	while (image_next_drain(&cut, survival != SURVIVES_NONE))
	{
		if (cut.position < step[0].acknowledged)
			continue;
		if (!is_chosen(cut.drain, survival))
			continue;
		if (survival != SURVIVES_NONE && survival != SURVIVES_ALL && image_differing() == 0)
			continue;
		n++;
		if (!check_image(&cut, survival, seed * 1000003 + cut.drain, n % deep_every == 0))
		{
			report(&cut, survival, "bad");
			bad++;
			if (drop_every != 0)
				return bad;
		}
		else if (verbose)
			report(&cut, survival, "good");
	}
	return bad;
}

int
enumerate_main(int argc, char **argv)
{
	unsigned	bad = 0;
	int			survival;
	double		start = now();

	begin(argc, argv);
	for (survival = 0; survival < SURVIVALS; survival++)
	{
		if (only_survival < 0 || only_survival == survival)
			bad += enumerate_survival((Survival) survival);
	}
	printf("images=%u bad=%u seconds=%.1f\n", images, bad, now() - start);
	return bad != 0;
}

/* ---- calls ---- */

/*
 * The points at which lines begin to be missing because of the call, and those
 * at which they are about to arrive after all: most was built on them there.
 * Returns how many; the points are ascending.
 */
static unsigned
find_points(bool before, uint64_t *points, unsigned space)
{
	uint64_t	last_drain = 0;
	uint64_t	last_sum = 0;
	bool		last_taken = true;
	unsigned	n = 0;
	Cut			cut;

	image_restart();
	while (image_next_drain(&cut, before) && n + 2 < space)
	{
		uint64_t	sum = image_lost_lines();

		if (cut.position < step[0].acknowledged)
			continue;
		if (sum != last_sum)
		{
			if (last_sum != 0 && !last_taken)
				points[n++] = last_drain;
			if (sum != 0)
				points[n++] = cut.drain;
		}
		last_taken = sum != last_sum;
		last_sum = sum;
		last_drain = cut.drain;
	}
	if (last_sum != 0 && !last_taken)
		points[n++] = last_drain;
	return n;
}

/* Look at so many of the points, spread over all. */
static bool
try_points(const char *call, Survival survival, const uint64_t *points, unsigned n)
{
	unsigned	next = 0;
	unsigned	i = (unsigned) (seed % (n / tries + 1));
	Cut			cut;

	image_restart();
	while (i < n && image_next_drain(&cut, survival != SURVIVES_NONE))
	{
		if (cut.drain < points[i])
			continue;
		if (!check_image(&cut, survival, seed * 7919 + cut.drain, true))
		{
			report(&cut, survival, call);
			return true;
		}
		for (next = i + n / tries + 1; next < n && points[next] <= cut.drain; next++)
			;
		i = next;
	}
	return false;
}

/* Does the suite notice when this call is missing? */
static const char *
try_call(const char *call)
{
	static const Survival order[] = {SURVIVES_ALL, SURVIVES_NONE, SURVIVES_HALF};
	static uint64_t points[100000];
	bool		any = false;
	unsigned	i;

	if (log_calls_made(call) == 0)
		return "never made";
	image_leave_out(call);
	for (i = 0; i < 3; i++)
	{
		unsigned	n = find_points(order[i] != SURVIVES_NONE, points, 100000);

		any |= n > 0;
		if (n > 0 && try_points(call, order[i], points, n))
			return "caught";
	}
	return any ? "missed" : "without effect";
}

int
calls_main(int argc, char **argv)
{
	char	  **names;
	int			n;
	int			i;

	begin(argc, argv);
	names = log_calls(&n);
	for (i = 0; i < n; i++)
	{
		double		start = now();
		unsigned	before = images;
		const char *outcome;

		if (one_call != NULL ? strcmp(names[i], one_call) != 0 : (unsigned) i % parts != part)
			continue;
		outcome = only_list ? "listed" : try_call(names[i]);
		printf("call %s: %s (%llu times, %u images, %.1f s)\n", names[i], outcome,
			   (unsigned long long) log_calls_made(names[i]), images - before, now() - start);
		fflush(stdout);
	}
	printf("images=%u\n", images);
	return 0;
}
