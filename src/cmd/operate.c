/* operate.c - see operate.h. */
#include "cmd/operate.h"

#include "pool/broker/state.h"
#include "pool/keys.h"
#include "pool/target.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB_ARGUMENTS_MAX 8

int operate_failed(const char *name, const char *what, int rc)
{
	fprintf(stderr, "reef %s: %s%s%s (%s)\n", name, what,
		what[0] ? ": " : "", reef_error_text(rc), reef_error_name(rc));
	return 1;
}

/* --- the link --- */

static int connect_failed(const char *name,
			  const struct reef_settings *settings,
			  const char *addresses, int rc)
{
	switch (rc) {
	case -ENOENT:
	case -ECONNREFUSED:
		fprintf(stderr,
			"reef %s: no broker at %s. Is `reef up` running?\n",
			name, addresses[0] ? addresses : settings->run);
		return 1;
	case -REEF_EAUTH:
		fprintf(stderr,
			"reef %s: the broker does not take this credential\n",
			name);
		return 1;
	default:
		return operate_failed(name, "the broker", rc);
	}
}

int operate_connect(const char *name, const struct reef_settings *settings,
		    struct reef_operator **out)
{
	struct reef_credential credential;
	char addresses[REEF_TARGET_MAX] = "";
	const struct reef_operator_options options = {
		.broker = addresses,
		.credential = &credential,
		.kinds = settings->fabrics,
	};
	int rc;

	rc = reef_target_broker(settings->pool ? settings->pool : "local",
				settings->run, addresses);
	if (rc)
		return connect_failed(name, settings, addresses, rc);
	rc = reef_target_credential(settings->credential, settings->run,
				    &credential);
	if (rc)
		return operate_failed(name,
				      settings->credential
					      ? settings->credential
					      : "the owner's credential",
				      rc);
	rc = reef_operator_open(&options, out);
	reef_key_wipe(&credential.key);
	return rc ? connect_failed(name, settings, addresses, rc) : -1;
}

/* --- verbs --- */

static void print_verbs(const char *name, const char *about,
			const struct verb *verbs, char *text, size_t size)
{
	int used = snprintf(text, size,
			    "usage: reef %s VERB [ARGUMENTS] "
			    "[OPTIONS]\n\n%s\n",
			    name, about);

	for (; verbs->name && used >= 0 && (size_t)used < size; verbs++)
		used += snprintf(text + used, size - (size_t)used,
				 "  %s %-*s  %s\n", verbs->name,
				 (int)(24 - strlen(verbs->name)),
				 verbs->arguments, verbs->summary);
}

/* NULL: there is none, or its arguments are not right; *rc is the status. */
static const struct verb *find_verb(const char *name, const struct verb *verbs,
				    const struct reef_config *config, int *rc)
{
	uint32_t count = reef_config_rest_count(config);
	const char *word = count ? reef_config_rest(config, 0) : NULL;

	if (!word) {
		*rc = cmd_usage_error(name, "which verb?");
		return NULL;
	}
	while (verbs->name && strcmp(verbs->name, word))
		verbs++;
	if (!verbs->name) {
		*rc = cmd_usage_error(name, "there is no verb \"%s\"", word);
		return NULL;
	}
	if (count - 1 < verbs->least || count - 1 > verbs->most) {
		*rc = cmd_usage_error(name, "it is: reef %s %s %s", name,
				      verbs->name, verbs->arguments);
		return NULL;
	}
	return verbs;
}

static int run_verb(const char *name, const struct verb *verb,
		    const struct reef_settings *settings)
{
	uint32_t count = reef_config_rest_count(settings->config) - 1;
	const char *arguments[VERB_ARGUMENTS_MAX] = {0};
	struct reef_operator *op;
	int rc;

	for (uint32_t i = 0; i < count && i < VERB_ARGUMENTS_MAX; i++)
		arguments[i] = reef_config_rest(settings->config, i + 1);
	rc = operate_connect(name, settings, &op);
	if (rc >= 0)
		return rc;
	rc = verb->run(op, arguments, count);
	reef_operator_close(op);
	return rc < 0 ? operate_failed(name, count ? arguments[0] : verb->name,
				       rc)
		      : rc;
}

int operate(int argc, char **argv, const char *about, const struct verb *verbs)
{
	const struct reef_config_input input = {
		.argc = argc, .argv = argv, .uses = REEF_USE_CLIENT};
	struct reef_settings settings;
	const struct verb *verb;
	char usage[2048];
	int rc;

	print_verbs(argv[0], about, verbs, usage, sizeof(usage));
	rc = cmd_settings(&input, usage, &settings);
	if (rc >= 0)
		return rc;
	verb = find_verb(argv[0], verbs, settings.config, &rc);
	if (verb)
		rc = run_verb(argv[0], verb, &settings);
	reef_settings_fini(&settings);
	return rc;
}

/* --- names and words --- */

struct search {
	enum reef_row_kind kind;
	const char *name;
	struct reef_row *out;
	char *end;
	unsigned long number;
};

static int look(void *context, const struct reef_row *row)
{
	struct search *search = context;
	uint32_t number = search->kind == REEF_ROW_NODE	     ? row->node
			  : search->kind == REEF_ROW_SPACE   ? row->space
			  : search->kind == REEF_ROW_SESSION ? row->session
							     : row->user;
	bool is_name = row->name.size == strlen(search->name) &&
		       !memcmp(row->name.bytes, search->name, row->name.size);

	/* A session's name is its program's, which is no name for it. */
	if (search->kind == REEF_ROW_SESSION)
		is_name = false;
	if (!is_name && (*search->end || search->number != number))
		return 0;
	*search->out = *row;
	search->out->name = search->out->addresses = (struct reef_text){0};
	return is_name ? 2 : 1;
}

int operate_find(struct reef_operator *op, enum reef_row_kind kind,
		 const char *name, struct reef_row *out)
{
	struct search search = {.kind = kind, .name = name, .out = out};
	int rc;

	search.number =
		strtoul(name, &search.end, kind == REEF_ROW_SESSION ? 16 : 10);
	rc = reef_operator_list(op, kind, look, &search);
	return rc > 0 ? 0 : rc ? rc : -ENOENT;
}

const char *operate_node_state(uint8_t state)
{
	switch (state) {
	case REEF_NODE_OK:
		return "ok";
	case REEF_NODE_DRAINING:
		return "draining";
	case REEF_NODE_DRAINED:
		return "drained";
	case REEF_NODE_DEAD:
		return "dead";
	default:
		return "unknown";
	}
}

const char *operate_session_state(uint8_t state)
{
	switch (state) {
	case REEF_SESSION_ALIVE:
		return "alive";
	case REEF_SESSION_EXPIRED:
		return "expired";
	case REEF_SESSION_FENCED:
		return "fenced";
	case REEF_SESSION_RECOVERED:
		return "recovered";
	default:
		return "unknown";
	}
}
