/* logs.c - see logs.h. */
#include "bench/logs.h"

#include "base/histogram.h"
#include "bench/sim_pool.h"
#include "bench/units.h"

#include <errno.h>
#include <reef/fiber.h>
#include <reef/log.h>
#include <stdio.h>
#include <stdlib.h>

#define HOSTS_MAX 16u
#define ENTRY 100u
#define OPS 4000u      /* at least */
#define OPS_EACH 300u  /* of a client */
#define SERVICE_NS 500 /* of the server, a request */
#define ROUND_TRIP_NS 2000

const char *const logs_lines[LOGS_LINES + 1] = {
	"one log",	  "a server's numbers", "by cuts",
	"by cuts, early", "a log each",		NULL};
const uint64_t logs_points[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 0};
const uint64_t logs_quick_points[] = {1, 8, 64, 0};

struct field {
	enum logs_line line;
	uint32_t clients, hosts, opened;
	struct sim_pool *pool;
	uint64_t server_free_ns;
	uint64_t done, warm, ops, begin_ns, end_ns;
	struct reef_histogram waits;
};

struct appender {
	struct field *field;
	struct sim_pool_client *host;
	uint32_t number;
	struct reef_log *log;
	uint64_t block; /* what numbers of a server are for */
	struct reef_fiber *fiber;
	int rc;
};

/* --- appending --- */

/* Ask the server for a number: a request waits for those before it. */
static int ask_server(struct field *field)
{
	uint64_t now_ns = sim_pool_now_ns(field->pool);
	uint64_t at_ns = now_ns + ROUND_TRIP_NS / 2;

	if (field->server_free_ns > at_ns)
		at_ns = field->server_free_ns;
	field->server_free_ns = at_ns + SERVICE_NS;
	return reef_sleep(at_ns + SERVICE_NS + ROUND_TRIP_NS / 2 - now_ns);
}

static int append_by_server(struct appender *appender)
{
	static const uint8_t bytes[ENTRY];
	struct reef_access accesses[] = {
		{.kind = REEF_WRITE,
		 .address = appender->block + 64,
		 .local = (void *)(uintptr_t)bytes,
		 .length = ENTRY},
		{.kind = REEF_CAS, .address = appender->block},
	};
	int rc = ask_server(appender->field);

	return rc ? rc : reef_execute(appender->host->reef, accesses, 2);
}

static int append_one(struct appender *appender)
{
	static const uint8_t bytes[ENTRY];

	return appender->field->line == LOGS_SERVER
		       ? append_by_server(appender)
		       : reef_log_append(appender->log, bytes, ENTRY, NULL);
}

static void count_append(struct field *field, uint64_t began_ns)
{
	uint64_t now_ns = sim_pool_now_ns(field->pool);

	field->done++;
	if (field->done == field->warm)
		field->begin_ns = now_ns;
	else if (field->done > field->warm && !field->end_ns)
		reef_histogram_record(&field->waits, now_ns - began_ns);
	if (field->done == field->warm + field->ops)
		field->end_ns = now_ns;
}

/* --- clients --- */

static int open_own(struct appender *appender)
{
	struct reef_log_options options = {
		.segment = appender->field->line == LOGS_ONE ? 1024 : 256,
		.cell = 104,
		.keep_entries = appender->field->line == LOGS_ONE ? 8192 : 512,
	};
	char name[32] = "log";
	int rc;

	if (appender->field->line == LOGS_SERVER)
		return reef_alloc(appender->host->space, 256, &appender->block);
	if (appender->field->line == LOGS_CUTS ||
	    appender->field->line == LOGS_EARLY) {
		options.flags = REEF_LOG_SHARDED;
		if (appender->field->line == LOGS_EARLY)
			options.flags |= REEF_LOG_EARLY;
		options.keep_entries = 16384;
	}
	if (appender->field->line == LOGS_EACH) {
		options.flags = REEF_LOG_SINGLE;
		snprintf(name, sizeof(name), "log-%u", appender->number);
	}
	rc = reef_log_open(appender->host->space, name, &options,
			   &appender->log);
	return rc || appender->field->line != LOGS_EACH
		       ? rc
		       : reef_log_lead(appender->log);
}

static int appender_main(void *arg)
{
	struct appender *appender = arg;
	struct field *field = appender->field;
	uint64_t began_ns;
	int rc = open_own(appender);

	if (!rc)
		rc = append_one(appender);
	if (!rc)
		rc = sim_pool_meet(&field->opened, field->clients);
	while (!rc && !field->end_ns) {
		began_ns = sim_pool_now_ns(field->pool);
		rc = append_one(appender);
		if (!rc)
			count_append(field, began_ns);
	}
	reef_log_close(appender->log);
	appender->rc = rc;
	return 0;
}

static int host_main(struct sim_pool_client *client)
{
	struct field *field = client->context;
	struct appender *appenders = calloc(field->clients, sizeof(*appenders));
	int rc = appenders ? 0 : -ENOMEM;

	field->pool = client->pool;
	for (uint32_t i = client->number; !rc && i < field->clients;
	     i += field->hosts) {
		appenders[i] = (struct appender){
			.field = field,
			.host = client,
			.number = i,
		};
		rc = reef_fiber_spawn(reef_fiber_sched(), appender_main,
				      &appenders[i], &appenders[i].fiber);
	}
	for (uint32_t i = 0; appenders && i < field->clients; i++) {
		if (!appenders[i].fiber)
			continue;
		reef_fiber_join(appenders[i].fiber, NULL);
		rc = rc ? rc : appenders[i].rc;
	}
	free(appenders);
	return rc;
}

int logs_line_run(enum logs_line line, uint32_t clients, uint64_t seed,
		  struct logs_result *out)
{
	struct field *field = calloc(1, sizeof(*field));
	struct sim_pool_options options = {
		.cost = {.page_size = 2 * MIB, .round_trip_ns = ROUND_TRIP_NS},
		.seed = seed,
		.run = host_main,
		.context = field,
	};
	int rc;

	if (!field)
		return -ENOMEM;
	field->line = line;
	field->clients = clients;
	field->hosts = clients < HOSTS_MAX ? clients : HOSTS_MAX;
	field->ops = OPS + OPS_EACH * clients;
	field->warm = field->ops / 4;
	options.clients = field->hosts;
	rc = sim_pool_run(&options);
	if (!rc)
		*out = (struct logs_result){
			.appends_per_s =
				(double)field->ops * 1e9 /
				(double)(field->end_ns - field->begin_ns),
			.p99_ns = (double)reef_histogram_quantile(&field->waits,
								  0.99),
		};
	free(field);
	return rc;
}
