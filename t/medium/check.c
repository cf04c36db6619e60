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
#include <sys/stat.h>

#include "medium.h"

typedef struct Step
{
	int			client;			/* 0: one client does everything */
	uint64_t	sent;
	uint64_t	acknowledged;
	uint64_t	wal_flushed;
	char	   *name;
	char	   *contents;
	char	   *other;			/* what may be found, too, while it is in flight; or NULL */
} Step;

static Step *step;				/* of each client in their order */
static int	nsteps;
static int	nclients;

/* Settings */
static const char *log_path,
		   *base_pool,
		   *base_data,
		   *wal_dir,
		   *steps_path,
		   *work,
		   *bindir,
		   *one_call,
		   *out_dir;
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
static const char *from_step,
		   *to_step;
static const char *script;
static uint64_t range_from = 0; /* positions: of the steps asked for */
static uint64_t range_to = UINT64_MAX;
static int	only_survival = -1;
static bool verbose = false;
static bool only_list = false;
static bool only_killed = false;
static bool use_after = false;
static bool leaves_after = false;
static bool stop_after = false;
static bool only_first = false;

static uint64_t first_position; /* where all clients have begun */
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
	else if (IS("out"))
		out_dir = value;
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
	else if (IS("first"))
		only_first = atoi(value) != 0;
	else if (IS("from"))
		from_step = value;
	else if (IS("to"))
		to_step = value;
	else if (IS("script"))
		script = value;
	else if (IS("cut"))
		only_cut = strtoull(value, NULL, 10);
	else if (IS("survival"))
		only_survival = atoi(value);
	else if (IS("killed"))
		only_killed = atoi(value) != 0;
	else if (IS("use"))
		use_after = atoi(value) != 0;
	else if (IS("leaves"))
		leaves_after = atoi(value) != 0;
	else if (IS("stop"))
		stop_after = atoi(value) != 0;
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
	int			client;
	int			i;

	for (line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save))
	{
		Step	   *s;
		unsigned long long sent,
					acknowledged,
					wal;
		int			at = 0;
		char	   *bar;

		if (sscanf(line, "%d %llu %llu %llu %n", &client, &sent, &acknowledged, &wal, &at) < 4 || at == 0 ||
			(bar = strchr(line + at, '|')) == NULL)
			die("bad line in %s: %s", steps_path, line);
		*bar = '\0';
		step = reallocate(step, sizeof(Step) * (nsteps + 1));
		s = &step[nsteps++];
		s->client = client;
		nclients = client > nclients ? client : nclients;
		s->sent = sent;
		s->acknowledged = acknowledged;
		s->wal_flushed = wal;
		s->name = line + at;
		s->contents = bar + 1;
		s->other = NULL;
		bar = strchr(s->contents, '|');
		if (bar != NULL)
		{
			*bar = '\0';
			s->other = bar + 1;
		}
	}
	if (nsteps == 0)
		die("%s has no steps", steps_path);
	for (client = nclients > 0 ? 1 : 0; client <= nclients; client++)
	{
		for (i = 0; i < nsteps && step[i].client != client; i++)
			;
		if (i < nsteps && step[i].acknowledged > first_position)
			first_position = step[i].acknowledged;
	}
}

/* Only what happens from the begin of one step to the end of another */
static void
find_range(void)
{
	int			i;

	for (i = 0; i < nsteps; i++)
	{
		if (from_step != NULL && strncmp(step[i].name, from_step, strlen(from_step)) == 0)
		{
			range_from = step[i].sent;
			from_step = NULL;
		}
		if (to_step != NULL && strncmp(step[i].name, to_step, strlen(to_step)) == 0)
		{
			range_to = step[i].acknowledged;
			to_step = NULL;
		}
	}
	if (from_step != NULL || to_step != NULL)
		die("there is no step \"%s\"", from_step != NULL ? from_step : to_step);
}

static bool
in_range(const Cut *cut)
{
	return cut->position >= first_position && cut->position >= range_from &&
		cut->position <= range_to;
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
	find_range();
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
	char	   *statistics;
	char		error[4000];

	for (word = strtok_r(strdup(found), " ", &save); word != NULL; word = strtok_r(NULL, " ", &save))
	{
		if (strstr(acknowledged->contents, word) == NULL)
			differing = print("%s %s", differing, word);
	}
	statistics = server_query("SELECT chk.statistics()", error, sizeof(error));
	snprintf(problem, sizeof(problem),
			 "contents are neither those after \"%s\"%s%s%s; found:%.1500s\nexpected: %.3000s\nstatistics: %.10000s\n",
			 acknowledged->name, in_flight ? " nor those after \"" : "",
			 in_flight ? in_flight->name : "", in_flight ? "\"" : "",
			 differing[0] != '\0' ? differing : " (fewer tables)", acknowledged->contents,
			 statistics != NULL ? statistics : error);
	free(differing);
	free(statistics);
}

/* Last step of a client that was acknowledged at the cut; the one in flight */
static const Step *
last_acknowledged(const Cut *cut, int client, const Step **in_flight)
{
	const Step *last = NULL;
	int			i;

	*in_flight = NULL;
	for (i = 0; i < nsteps; i++)
	{
		if (step[i].client != client)
			continue;
		if (step[i].acknowledged <= cut->position)
			last = &step[i];
		else
		{
			if (step[i].sent <= cut->position)
				*in_flight = &step[i];
			break;
		}
	}
	return last;
}

static char *
contents_query(int client)
{
	return client == 0 ? strdup("SELECT chk.contents()") : print("SELECT chk.contents_of(%d)", client);
}

/*
 * Contents after the last step acknowledged at the cut, or after the one in
 * flight.  *state: the contents that it is.
 */
static bool
check_client(const Cut *cut, int client, const char **state)
{
	char		error[4000];
	const Step *next;
	const Step *last = last_acknowledged(cut, client, &next);
	char	   *sql = contents_query(client);
	char	   *found = server_query(sql, error, sizeof(error));

	*state = NULL;
	free(sql);
	if (last == NULL)
		die("client %d has no step before this cut", client);
	if (found == NULL)
		return complain("contents", error);
	if (strcmp(found, last->contents) == 0)
		*state = last->contents;
	else if (next != NULL && strcmp(found, next->contents) == 0)
		*state = next->contents;
	else if (next != NULL && next->other != NULL && strcmp(found, next->other) == 0)
		*state = next->other;
	else
		complain_contents(last, next, found);
	free(found);
	return *state != NULL;
}

static bool
check_contents(const Cut *cut, const char **state)
{
	int			client;

	for (client = nclients > 0 ? 1 : 0; client <= nclients; client++)
	{
		if (!check_client(cut, client, &state[client]))
			return false;
	}
	return true;
}

static bool
contents_unchanged(const char **state)
{
	int			client;
	bool		same = true;

	for (client = nclients > 0 ? 1 : 0; client <= nclients && same; client++)
	{
		char	   *sql = contents_query(client);

		same = ask(sql, state[client]);
		if (!same)
			complain(print("contents have changed, were %s", state[client]), strdup(problem));
		free(sql);
	}
	return same;
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

/* What contents() says of transactions of a kind, up to its end, or NULL: nothing */
static const char *
transactions_in(const char **state, const char *kind)
{
	return nclients == 0 ? strstr(state[0], kind) : NULL;
}

static bool
has_prepared(const char **state)
{
	return transactions_in(state, "prepared:") != NULL;
}

/* What contents() says when there are none of them any more */
static void
forget_transactions(const char **state, const char *kind)
{
	const char *at = transactions_in(state, kind);

	if (at != NULL)
		state[0] = strndup(state[0], (size_t) (at - state[0]));
}

/*
 * A transaction that is kept has exactly its finished statements, and goes on; then
 * it is rolled back, by an error, so that it never has more of them.
 */
static bool
check_kept(const char **state)
{
	char		error[4000] = "";
	char	   *answer;

	if (transactions_in(state, "kept:") == NULL)
		return true;
	forget_transactions(state, "kept:");
	if (!ask("BEGIN", NULL))
		return false;
	answer = server_query("SELECT chk.kept()", error, sizeof(error));
	if (answer != NULL || strstr(error, "the kept transaction went on") == NULL)
		return complain("kept", answer != NULL ? answer : error);
	return ask("ROLLBACK", NULL) && contents_unchanged(state);
}

/* Prepared transactions have locks, for which verify() and TRUNCATE would wait. */
static bool
roll_back_prepared(const char **state)
{
	char		error[4000];
	char	   *commands = server_query("SELECT string_agg(format('ROLLBACK PREPARED %L', gid), ';') FROM pg_prepared_xacts",
										error, sizeof(error));
	char	   *save = NULL;
	char	   *command;
	bool		ok = true;

	if (commands == NULL)
		return complain("pg_prepared_xacts", error);
	for (command = strtok_r(commands, ";", &save); ok && command != NULL; command = strtok_r(NULL, ";", &save))
		ok = ask(command, NULL);
	free(commands);
	forget_transactions(state, "prepared:");
	return ok && contents_unchanged(state);
}

/* Every table can be written and vacuumed, and all space comes back. */
static bool
check_use(const char **state)
{
	return ask("SELECT chk.write()", "") &&
		contents_unchanged(state) &&
		vacuum_all() &&
		ask("SELECT chk.problems()", "") &&
		ask("SELECT chk.losses()", "") &&
		contents_unchanged(state) &&
		ask("SELECT chk.drop_all()", "") &&
		ask("SELECT chk.leaks()", "");
}

/* WAL as far as it was flushed, in half of the images as far as it was written */
static void
set_wal_and_control(const Cut *cut, Survival survival, uint64_t image_seed)
{
	uint64_t	wal = cut->wal_flushed;
	const Step *in_flight;
	const Step *last = last_acknowledged(cut, 0, &in_flight);

	if (survival != SURVIVES_NONE && cut->wal_written > wal && (image_seed & 1))
		wal = cut->wal_written;
	if (last != NULL && last->wal_flushed > wal)
		wal = last->wal_flushed;
	datadir_set_wal(wal_dir, wal);
	datadir_set_control(cut->control, cut->control_size);
}

/*
 * One image: start, look, end.  False: something promised is missing, and
 * "problem" says what.
 */
static bool
check_image(const Cut *cut, Survival survival, uint64_t image_seed, bool deep)
{
	const char **state = allocate((nclients + 1) * sizeof(char *));
	bool		ok;

	images++;
	image_write(image_path, survival, image_seed);
	datadir_restore();
	set_wal_and_control(cut, survival, image_seed);
	problem[0] = '\0';
	if (!server_start(server_log, NULL))
		ok = complain("the server does not start", server_log_tail());
	else
	{
		/* half of the time memory that is free is used before anybody looks for damage */
		ok = check_contents(cut, state) && check_kept(state) && ask("SELECT chk.locks()", "") &&
			ask("SELECT chk.old_versions()", "") &&
			(!(image_seed & 2) || ask("SELECT chk.occupy()", "")) && roll_back_prepared(state) &&
			ask("SELECT chk.problems()", "") &&
			(!deep || check_use(state));
		if (!server_running())
			ok = complain("the server died", server_log_tail());
		else if (ok && server_log_has("damaged"))
			ok = complain("the log tells of damage", server_log_tail());
	}
	server_kill();
	free(state);
	return ok;
}

static void
report(const Cut *cut, Survival survival, const char *what)
{
	const Step *in_flight;
	const Step *last = last_acknowledged(cut, nclients > 0 ? 1 : 0, &in_flight);

	printf("%s: cut=%llu survival=%s seed=%llu after \"%s\", %u lines open: %s\n", what,
		   (unsigned long long) cut->drain, survival_name[survival], (unsigned long long) seed,
		   last->name, image_differing(), problem);
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
		if (!in_range(&cut))
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
	image_cut_early(seed);
	for (survival = 0; survival < SURVIVALS; survival++)
	{
		if (only_survival < 0 || only_survival == survival)
			bad += enumerate_survival((Survival) survival);
	}
	printf("images=%u bad=%u seconds=%.1f\n", images, bad, now() - start);
	return bad != 0;
}

/* ---- calls ---- */

/* A point at which lines are missing because a call was left out */
typedef struct Point
{
	uint64_t	drain;
	uint64_t	age;			/* drains for which a line was missing that is
								 * about to arrive */
} Point;

static void
add_point(Point *points, unsigned *n, unsigned space, uint64_t drain, uint64_t age)
{
	if (*n < space)
	{
		points[*n].drain = drain;
		points[*n].age = age;
		(*n)++;
	}
}

/*
 * The points at which lines are missing because of the call.  Those at which
 * one is about to arrive after all are marked by its age: most was built on it
 * there.  Returns how many; the points are ascending.
 */
static unsigned
find_points(bool before, Point *points, unsigned space)
{
	unsigned	n = 0;
	Cut			cut;

	image_restart();
	while (image_next_drain(&cut, before))
	{
		uint64_t	age;
		uint64_t	sum = image_lost_lines(&age);

		if (!in_range(&cut))
			continue;
		if (age > 0 && n > 0)
			points[n - 1].age = age;
		if (sum != 0)
			add_point(points, &n, space, cut.drain, 0);
	}
	if (n > 0)
		points[n - 1].age = UINT64_MAX;
	return n;
}

static int
compare_ages(const void *a, const void *b)
{
	const Point *x = a;
	const Point *y = b;

	return x->age != y->age ? (x->age < y->age ? 1 : -1) : (x->drain < y->drain ? -1 : x->drain > y->drain);
}

static int
compare_drains(const void *a, const void *b)
{
	const Point *x = a;
	const Point *y = b;

	return x->drain < y->drain ? -1 : x->drain > y->drain;
}

/* Half of those to be looked at: where lines were missing longest; half any. */
static unsigned
choose_points(Point *points, unsigned n)
{
	unsigned	half = tries / 2;
	uint64_t	dice = seed * 7919 + n;
	unsigned	i;

	if (n <= tries)
		return n;
	qsort(points, n, sizeof(Point), compare_ages);
	for (i = half; i < 2 * half; i++)
	{
		Point	   *other = &points[i + random_next(&dice) % (n - i)];
		Point		p = *other;

		*other = points[i];
		points[i] = p;
	}
	qsort(points, 2 * half, sizeof(Point), compare_drains);
	return 2 * half;
}

static bool
go_to(Cut *cut, uint64_t drain, Survival survival)
{
	image_restart();
	while (image_next_drain(cut, survival != SURVIVES_NONE))
	{
		if (cut->drain == drain)
			return true;
	}
	return false;
}

/*
 * Is it the call that is missing, and not the machine that is slow, or a fault?  The same
 * image with the call must be good.
 */
static bool
is_good_with_call(const char *call, uint64_t drain, Survival survival, uint64_t image_seed)
{
	Cut			cut;
	bool		good;

	image_leave_out(NULL);
	good = go_to(&cut, drain, survival) && check_image(&cut, survival, image_seed, true);
	if (!good)
		report(&cut, survival, "bad, also with the call");
	image_leave_out(call);
	return good;
}

typedef enum Finding
{
	FOUND_NOTHING,
	FOUND_LOSS,					/* the image is bad, and good with the call */
	FOUND_FAULT					/* it is bad either way */
} Finding;

static Finding
try_points(const char *call, Survival survival, const Point *points, unsigned n)
{
	unsigned	i = 0;
	unsigned	throws = survival == SURVIVES_HALF && n < tries ? (tries + n - 1) / n : 1;
	unsigned	t;
	Cut			cut;

	image_restart();
	while (i < n && image_next_drain(&cut, survival != SURVIVES_NONE))
	{
		if (cut.drain < points[i].drain)
			continue;
		for (t = 0; t < throws; t++)
		{
			uint64_t	image_seed = seed * 7919 + cut.drain + t * 1000003;

			if (!check_image(&cut, survival, image_seed, true))
			{
				report(&cut, survival, call);
				return is_good_with_call(call, cut.drain, survival, image_seed) ?
					FOUND_LOSS : FOUND_FAULT;
			}
		}
		while (i < n && points[i].drain <= cut.drain)
			i++;
	}
	return FOUND_NOTHING;
}

/* Does the suite notice when this call is missing? */
static const char *
try_call(const char *call)
{
	static const Survival order[] = {SURVIVES_ALL, SURVIVES_NONE, SURVIVES_LATER, SURVIVES_HALF};
	static Point points[100000];
	bool		any = false;
	unsigned	i;

	if (log_calls_made(call) == 0)
		return "never made";
	image_leave_out(call);
	for (i = 0; i < 4; i++)
	{
		unsigned	n = find_points(order[i] != SURVIVES_NONE, points, 100000);

		any |= n > 0;
		n = choose_points(points, n);
		switch (n > 0 ? try_points(call, order[i], points, n) : FOUND_NOTHING)
		{
			case FOUND_LOSS:
				return "caught";
			case FOUND_FAULT:
				return "bad, also with the call";
			case FOUND_NOTHING:
				break;
		}
	}
	return any ? "missed" : "without effect";
}

/* Is the call one of those asked for?  They are separated by commas. */
static bool
is_asked_for(const char *call)
{
	const char *p = one_call;
	size_t		n = strlen(call);

	while (p != NULL && (p = strstr(p, call)) != NULL)
	{
		if ((p == one_call || p[-1] == ',') && (p[n] == ',' || p[n] == '\0'))
			return true;
		p += n;
	}
	return one_call == NULL;
}

int
calls_main(int argc, char **argv)
{
	unsigned	asked = 0;
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

		if (!is_asked_for(names[i]) || asked++ % parts != part)
			continue;
		outcome = only_list ? "listed" : try_call(names[i]);
		printf("call %s: %s (%llu times, %u images, %.1f s)\n", names[i], outcome,
			   (unsigned long long) log_calls_made(names[i]), images - before, now() - start);
		fflush(stdout);
	}
	printf("images=%u\n", images);
	return 0;
}

/* ---- kills ---- */

/* Of the drains at which a flush is open one is chosen at random, or the first. */
int
kills_main(int argc, char **argv)
{
	static uint64_t chosen[SHADOW_MAX_SITES];
	static unsigned met[SHADOW_MAX_SITES];
	static bool open[SHADOW_MAX_SITES];
	uint64_t	dice;
	const char *name;
	uint32_t	i;
	Cut			cut;

	begin(argc, argv);
	dice = seed * 2 + 1;
	image_restart();
	while (image_next_drain(&cut, true))
	{
		if (!in_range(&cut))
			continue;
		image_flushes_open(open);
		for (i = 0; log_site_name(i) != NULL; i++)
		{
			if (open[i] && (random_next(&dice) % ++met[i] == 0 || met[i] == 1) &&
				(!only_first || met[i] == 1))
				chosen[i] = cut.drain;
		}
	}
	for (i = 0; (name = log_site_name(i)) != NULL; i++)
	{
		if (met[i] > 0)
			printf("kill %s cut=%llu\n", name, (unsigned long long) chosen[i]);
	}
	return 0;
}

/* ---- again ---- */

/* What recovery has to leave behind is seen best by who uses it. */
static bool
use_recovered(const char **state)
{
	return ask("SELECT chk.write(8)", "") && ask("SELECT chk.problems()", "") && vacuum_all() &&
		contents_unchanged(state) && ask("SELECT chk.problems()", "") &&
		!server_log_has("points to no allocation");
}

/* A data directory and a pool for the cut */
static void
make_state(const Cut *cut, Survival survival, const char *data, const char *pool)
{
	uint64_t	image_seed = seed * 1000003 + cut->drain;

	image_write(pool, survival, image_seed);
	datadir_prepare(base_data, data);
	set_wal_and_control(cut, survival, image_seed | (only_killed ? 1 : 0));
}

/* End of a log that is being written */
static uint64_t
log_tail(const char *path)
{
	ShadowHeader h;
	FILE	   *f = fopen(path, "r");

	if (f == NULL || fread(&h, sizeof(h), 1, f) != 1)
		die("cannot read %s", path);
	fclose(f);
	return h.tail;
}

/* Who has recovered looks whether all is well, and writes. */
static bool
use_at_once(const char **state)
{
	return (has_prepared(state) || ask("SELECT chk.problems()", "")) &&
		ask("INSERT INTO chk.usable VALUES (0, 'recovered')", NULL) &&
		ask("DELETE FROM chk.usable", NULL) &&
		(!use_after || has_prepared(state) || use_recovered(state));
}

/*
 * The server ends in order, and power fails when it has ended: the data directory is as
 * it was left, and there is one point to be cut at, behind the last drain.
 */
static void
stop_in_order(const char *log)
{
	char		error[4000];
	char	   *contents = server_connect() ? server_query("SELECT chk.contents()", error, sizeof(error)) : NULL;
	FILE	   *f;

	if (contents == NULL)
		die("no contents before the end of the server");
	server_stop();
	(void) log_open(log);
	f = fopen(print("%s/steps", out_dir), "w");
	if (f == NULL ||
		fprintf(f, "0 0 %llu 0 stopped|%s\n", (unsigned long long) log_last_drain(), contents) < 0 ||
		fclose(f) != 0 ||
		rename(print("%s/data", out_dir), print("%s/data.before", out_dir)) != 0 ||
		rename(print("%s/running", out_dir), print("%s/data", out_dir)) != 0 ||
		mkdir(print("%s/wal", out_dir), 0700) != 0)
		die("cannot write to %s", out_dir);
}

/* A step that ended with this contents of each client's */
static void
write_states(FILE *f, const char *name, uint64_t sent, uint64_t acknowledged, const char **state)
{
	int			client;

	for (client = nclients > 0 ? 1 : 0; client <= nclients; client++)
		fprintf(f, "%d %llu %llu 0 %s|%s\n", client, (unsigned long long) sent,
				(unsigned long long) acknowledged, name, state[client]);
}

/* Start the server, look, and do what is asked for with what has recovered. */
static bool
recover(const Cut *cut, const char *log, FILE *f)
{
	const char **state = allocate((nclients + 1) * sizeof(char *));
	const char **before = allocate((nclients + 1) * sizeof(char *));
	const Step *in_flight;
	int			client;
	uint64_t	answered;
	uint64_t	went_on;

	if (!server_start(server_log, log) || !check_contents(cut, state))
		return false;
	/* until the first answer, what was in flight may still become either */
	answered = log_tail(log);
	for (client = nclients > 0 ? 1 : 0; client <= nclients; client++)
		before[client] = last_acknowledged(cut, client, &in_flight)->contents;
	write_states(f, "before", 0, 0, before);
	write_states(f, "recovery", 0, answered, state);
	if (leaves_after)
	{
		bool		ok = ask("SELECT sofort_test.disarm('launcher-started')", NULL);

		server_disconnect();
		return ok;
	}
	if (!use_after)
		return use_at_once(state);
	if (!check_kept(state))
		return false;
	went_on = log_tail(log);
	write_states(f, "went on", answered, went_on, state);
	if (!use_at_once(state))
		return false;
	write_states(f, "used", went_on, log_tail(log), state);
	return true;
}

/*
 * Start from one image and record what recovery does, so that power can be cut
 * again while it does: out/ becomes what enumerate and calls need.  killed=1: the
 * processes were killed at the cut, so all that was stored is still there; but
 * the power cut that comes later may take it.
 */
int
again_main(int argc, char **argv)
{
	Survival	survival;
	Cut			cut;
	char	   *log;
	char	   *pool;
	FILE	   *f;

	begin(argc, argv);
	image_leave_out(one_call);
	if (only_killed)
		only_survival = SURVIVES_ALL;
	if (!out_dir || only_survival < 0 || !go_to(&cut, only_cut, only_survival))
		die("out, cut and survival are needed");
	survival = (Survival) only_survival;
	if (script != NULL && nclients > 0)
		die("a script cannot follow several clients");
	log = print("%s/log", out_dir);
	pool = print("%s/pool", out_dir);
	make_state(&cut, survival, print("%s/data", out_dir), pool);
	if (only_killed)
	{
		if (rename(pool, print("%s.visible", pool)) != 0)
			die("cannot write to %s", out_dir);
		image_write(pool, SURVIVES_NONE, 0);
	}
	make_state(&cut, survival, print("%s/running", out_dir), print("%s/running.pool", out_dir));
	f = fopen(log, "w");
	if (f == NULL || fclose(f) != 0)
		die("cannot write %s", log);
	server_configure(bindir, print("%s/running", out_dir), print("%s/running.pool", out_dir), work);
	/* nobody else may resolve what was left open: who does not end would drain some time later */
	if (leaves_after)
		server_stop_at("launcher-started:wait");
	f = fopen(print("%s/steps", out_dir), "w");
	if (f == NULL)
		die("cannot write to %s", out_dir);
	if (!recover(&cut, log, f))
	{
		server_kill();
		report(&cut, survival, "bad");
		return 1;
	}
	if (script != NULL)
		(void) record_script(server_conninfo(), log, script, f);
	if (fclose(f) != 0)
		die("cannot write to %s", out_dir);
	if (stop_after)
		stop_in_order(log);
	else
	{
		server_kill();
		if (rename(print("%s/running/pg_wal", out_dir), print("%s/wal", out_dir)) != 0)
			die("cannot write to %s", out_dir);
	}
	printf("drains=%llu\n", (unsigned long long) log_open(log)->drains);
	return 0;
}
