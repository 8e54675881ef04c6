/* operate.c - see operate.h. */
#include "cmd/operate.h"

#include "base/units.h"
#include "pool/keys.h"
#include "pool/target.h"
#include "wire/states.h"

#include <errno.h>
#include <reef/error.h>
#include <reef/reef.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERB_ARGUMENTS_MAX 8
#define WHAT_MAX 80
#define VERB_WIDTH 26
#define WAITING_SECONDS 4

int operate_say(const char *name, const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "reef %s: ", name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n");
	return 1;
}

/* The text of a broker's error, where the words of errno would mislead. */
static const char *error_text(int rc)
{
	switch (rc) {
	case -EPERM:
	case -EACCES:
		return "this user may not do that";
	case -EEXIST:
		return "there is one of that name already";
	case -ENAMETOOLONG:
		return "that name is too long";
	case -EINVAL:
		return "the pool does not take that: a name is text without "
		       "control characters";
	case -ENOSPC:
		return "the pool has no room for it: a space grows by whole "
		       "extents, 64 MiB each unless extent-size says "
		       "otherwise; `reef node list` shows who lends memory, "
		       "and how much";
	case -EDQUOT:
		return "the space is at its quota, or its user at a limit "
		       "(`reef user list`); memory that was lost counts, too, "
		       "until `reef space forget`";
	case -ETIMEDOUT:
		return "the broker does not answer; `reef status` may tell "
		       "why";
	default:
		return reef_error_text(rc);
	}
}

int operate_failed(const char *name, const char *what, int rc)
{
	char shown[WHAT_MAX + 4] = "";

	if (what && what[0])
		snprintf(shown, sizeof(shown), "%.*s%s: ", WHAT_MAX - 3, what,
			 strlen(what) > WHAT_MAX - 3 ? "..." : "");
	return operate_say(name, "%s%s (%s)", shown, error_text(rc),
			   reef_error_name(rc));
}

int operate_give_secret(const char *name, char text[REEF_KEY_TEXT_SIZE],
			const char *file)
{
	int rc;

	if (!file) {
		printf("%s\n", text);
		explicit_bzero(text, REEF_KEY_TEXT_SIZE);
		return 0;
	}
	rc = reef_key_text_save(file, text);
	return rc ? operate_say(name, "%s: %s", file, reef_error_text(rc)) : 0;
}

int operate_size(const char *name, const char *text, uint64_t *out)
{
	int rc = reef_size_parse(text, out);

	if (rc == -ERANGE)
		return cmd_usage_error(name, "\"%.40s\" is too large", text);
	if (rc)
		return cmd_usage_error(
			name, "\"%.40s\" is not a size, as 512M or 1.5G", text);
	return *out ? 0 : cmd_usage_error(name, "the size must not be 0");
}

/* --- the link --- */

static int connect_failed(const char *name,
			  const struct reef_settings *settings,
			  const char *addresses, int rc)
{
	switch (rc) {
	case -ENOENT:
	case -ECONNREFUSED:
		return operate_say(name,
				   "no broker at %s. Is `reef up` running?",
				   addresses[0] ? addresses : settings->run);
	case -REEF_EAUTH:
		return operate_say(name, "the broker does not take this "
					 "credential: it was revoked, or is "
					 "another pool's");
	case -REEF_EVERSION:
		return operate_say(name,
				   "%s: the broker is of another version than "
				   "this command",
				   addresses);
	case -REEF_ETLS:
		return operate_say(name,
				   "%s: the broker and this command disagree "
				   "about encryption; see --tls",
				   addresses);
	case -EINVAL:
		return operate_say(name, "%s: is neither local nor HOST:PORT",
				   settings->pool ? settings->pool : "local");
	case -ETIMEDOUT:
		return operate_say(name, "no answer from %s", addresses);
	case -EDQUOT:
		return operate_say(name, "this user has as many links to the "
					 "broker as their limit allows "
					 "(EDQUOT)");
	default:
		return operate_failed(
			name, addresses[0] ? addresses : settings->run, rc);
	}
}

static int credential_failed(const char *name,
			     const struct reef_settings *settings, int rc)
{
	const char *path = settings->credential ? settings->credential
						: "the owner's credential";

	/* The owner's is made by `reef up`, and goes with it. */
	if (rc == -ENOENT && !settings->credential)
		return !settings->pool || strcmp(settings->pool, "local") == 0
			       ? connect_failed(name, settings, "", rc)
			       : operate_say(name,
					     "a credential is needed: "
					     "--credential FILE, as `reef "
					     "user add` makes one");
	if (rc == -EPERM)
		return operate_say(name,
				   "%s: it must be this user's, and closed to "
				   "others: chmod 600 %s",
				   path, path);
	return operate_say(name, "%s: %s", path, reef_error_text(rc));
}

/* Open the link. addresses: where it was tried; *has_credential: what failed is
 * not the credential's file. */
static int try_connect(const struct reef_settings *settings,
		       uint64_t timeout_ns, char addresses[REEF_TARGET_MAX],
		       bool *has_credential, struct reef_operator **out)
{
	struct reef_credential credential;
	const struct reef_operator_options options = {
		.broker = addresses,
		.credential = &credential,
		.kinds = settings->fabrics,
		.tls = settings->tls,
		.timeout_ns = timeout_ns,
	};
	int rc;

	*has_credential = true;
	rc = reef_target_broker(settings->pool ? settings->pool : "local",
				settings->run, addresses);
	if (rc)
		return rc;
	rc = reef_target_credential(settings->credential, settings->run,
				    &credential);
	*has_credential = !rc;
	if (rc)
		return rc;
	rc = reef_operator_open(&options, out);
	reef_key_wipe(&credential.key);
	return rc;
}

int operate_connect(const char *name, const struct reef_settings *settings,
		    struct reef_operator **out)
{
	char addresses[REEF_TARGET_MAX] = "";
	bool has_credential;
	int rc = try_connect(settings, 0, addresses, &has_credential, out);

	if (!rc)
		return -1;
	return has_credential ? connect_failed(name, settings, addresses, rc)
			      : credential_failed(name, settings, rc);
}

int operate_connect_as(const struct reef_settings *settings,
		       const struct reef_credential *credential,
		       struct reef_operator **out)
{
	char addresses[REEF_TARGET_MAX] = "";
	const struct reef_operator_options options = {
		.broker = addresses,
		.credential = credential,
		.kinds = settings->fabrics,
		.tls = settings->tls,
	};
	int rc = reef_target_broker(settings->pool ? settings->pool : "local",
				    settings->run, addresses);

	return rc ? rc : reef_operator_open(&options, out);
}

int operate_connect_quietly(const struct reef_settings *settings,
			    uint64_t timeout_ns, struct reef_operator **out)
{
	char addresses[REEF_TARGET_MAX] = "";
	bool has_credential;

	return try_connect(settings, timeout_ns, addresses, &has_credential,
			   out);
}

/* The pool takes no more of this user's sessions, or not even a link to ask
 * about that. */
static int join_refused(const char *name, const struct reef_settings *settings)
{
	struct reef_operator *op = NULL;
	int rc = operate_connect(name, settings, &op);

	if (rc >= 0)
		return rc;
	if (!operate_limit_said(name, op))
		operate_say(name, "this user has as many sessions as their "
				  "limit allows (EDQUOT)");
	reef_operator_close(op);
	return 1;
}

int operate_open_quietly(const struct reef_settings *settings,
			 const char *program, struct reef **out)
{
	const struct reef_options options = {
		.credential = settings->credential,
		.fabrics = settings->fabrics,
		.tls = settings->tls,
		.name = program,
	};

	/* The library looks there for the pool of this machine. */
	if (settings->run && setenv("REEF_RUN", settings->run, 1))
		return -errno;
	return reef_open(settings->pool, &options, out);
}

int operate_open(const char *name, const struct reef_settings *settings,
		 const char *program, struct reef **out)
{
	int rc = operate_open_quietly(settings, program, out);

	if (rc == -ENOENT || rc == -ECONNREFUSED || rc == -REEF_ETLS)
		return connect_failed(name, settings,
				      settings->pool ? settings->pool : "", rc);
	if (rc == -EDQUOT)
		return join_refused(name, settings);
	return rc ? operate_failed(name, "the pool", rc) : -1;
}

static char waiting_text[80];

static void say_waiting(int signal)
{
	if (write(STDERR_FILENO, waiting_text, strlen(waiting_text)) < 0)
		return; /* then nobody reads it */
}

void operate_tell_waiting(const char *name)
{
	struct sigaction action = {.sa_handler = say_waiting,
				   .sa_flags = SA_RESTART | SA_RESETHAND};

	alarm(0);
	if (!name)
		return;
	snprintf(waiting_text, sizeof(waiting_text),
		 "reef %s: waits for the pool; Ctrl-C gives up\n", name);
	sigaction(SIGALRM, &action, NULL);
	alarm(WAITING_SECONDS);
}

/* --- limits --- */

const char *const operate_limits[REEF_LIMIT_COUNT] = {
#define X(upper, lower) #lower,
	REEF_LIMITS(X)
#undef X
};

struct at_limit {
	const char *name;
	uint32_t user;
	int said;
};

static int say_limits(void *context, const struct reef_row *row)
{
	const struct reef_row_user *user = &row->user;
	struct at_limit *at = context;

	for (uint32_t i = 0; user->number == at->user && i < REEF_LIMIT_COUNT;
	     i++)
		if (user->uses[i] >= user->limits[i])
			at->said = operate_say(
				at->name,
				"user %.*s has %llu of %llu %s: that is their "
				"limit (EDQUOT)",
				(int)user->name.size, user->name.bytes,
				(unsigned long long)user->uses[i],
				(unsigned long long)user->limits[i],
				operate_limits[i]);
	return 0;
}

int operate_limit_said(const char *name, struct reef_operator *op)
{
	struct at_limit at = {.name = name, .user = reef_operator_user(op)};

	/* The owner has no limits. */
	if (at.user)
		reef_operator_list(op, REEF_ROW_USER, say_limits, &at);
	return at.said;
}

/* --- verbs --- */

static void print_verbs(const char *name, const char *about,
			const struct verb *verbs, char *text, size_t size)
{
	int used = snprintf(text, size,
			    "usage: reef %s VERB [ARGUMENTS] "
			    "[OPTIONS]\n\n%s\n",
			    name, about);

	for (; verbs->name && used >= 0 && (size_t)used < size; verbs++) {
		int width = snprintf(text + used, size - (size_t)used,
				     "  %s %s", verbs->name, verbs->arguments);

		used += width;
		if (used < 0 || (size_t)used >= size)
			return;
		/* A verb that is too long has its summary on the next line. */
		if (width > VERB_WIDTH)
			used += snprintf(text + used, size - (size_t)used,
					 "\n%*s  %s\n", VERB_WIDTH, "",
					 verbs->summary);
		else
			used += snprintf(text + used, size - (size_t)used,
					 "%*s  %s\n", VERB_WIDTH - width, "",
					 verbs->summary);
	}
}

/* Find the verb that was given. NULL: there is none, or its arguments are
 * wrong; *rc is the exit status. */
static const struct verb *find_verb(const char *name, const struct verb *verbs,
				    const struct reef_config *config, int *rc)
{
	uint32_t count = reef_config_rest_count(config);
	const char *word = count ? reef_config_rest(config, 0) : NULL;

	if (!word) {
		*rc = cmd_usage_error(name, "a verb is missing");
		return NULL;
	}
	while (verbs->name && strcmp(verbs->name, word))
		verbs++;
	if (!verbs->name) {
		*rc = cmd_usage_error(name, "there is no verb \"%s\"", word);
		return NULL;
	}
	if (count - 1 < verbs->least || count - 1 > verbs->most) {
		*rc = cmd_usage_error(name, "usage: reef %s %s %s", name,
				      verbs->name, verbs->arguments);
		return NULL;
	}
	return verbs;
}

static const struct reef_settings *current;

const struct reef_settings *operate_settings(void)
{
	return current;
}

static int run_verb(const char *name, const struct verb *verb,
		    const struct reef_settings *settings)
{
	uint32_t count = reef_config_rest_count(settings->config) - 1;
	const char *arguments[VERB_ARGUMENTS_MAX] = {0};
	struct reef_operator *op = NULL;
	int rc;

	for (uint32_t i = 0; i < count && i < VERB_ARGUMENTS_MAX; i++)
		arguments[i] = reef_config_rest(settings->config, i + 1);
	current = settings;
	rc = operate_connect(name, settings, &op);
	if (rc >= 0)
		return rc;
	rc = verb->run(op, arguments, count);
	if (rc == -EDQUOT && operate_limit_said(name, op))
		rc = 1;
	reef_operator_close(op);
	return rc < 0 ? operate_failed(name, count ? arguments[0] : verb->name,
				       rc)
		      : rc;
}

int operate(int argc, char **argv, const char *about, const struct verb *verbs)
{
	return operate_with_flags(argc, argv, about, verbs, NULL);
}

int operate_with_flags(int argc, char **argv, const char *about,
		       const struct verb *verbs,
		       const struct reef_config_flag *flags)
{
	const struct reef_config_input input = {
		.argc = argc,
		.argv = argv,
		.uses = REEF_USE_CLIENT,
		.flags = flags,
	};
	struct reef_settings settings;
	const struct verb *verb;
	char usage[3072];
	int rc;

	for (verb = verbs; verb->name; verb++)
		cmd_tell_word(verb->name, verb->summary);
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
	uint32_t *out;
	char *end;
	unsigned long number;
};

/* What a row can be called by. A session has no name, only its program's. */
static uint32_t number_of(const struct reef_row *row, struct reef_text *name)
{
	switch (row->row) {
	case REEF_ROW_NODE:
		*name = row->node.name;
		return row->node.number;
	case REEF_ROW_SPACE:
		*name = row->space.name;
		return row->space.number;
	case REEF_ROW_USER:
		*name = row->user.name;
		return row->user.number;
	default:
		*name = (struct reef_text){0};
		return row->session.id;
	}
}

static int keep_match(void *context, const struct reef_row *row)
{
	struct search *search = context;
	struct reef_text name;
	uint32_t number = number_of(row, &name);
	bool is_name = row->row != REEF_ROW_SESSION && name.bytes &&
		       name.size == strlen(search->name) &&
		       !memcmp(name.bytes, search->name, name.size);

	if (!is_name && (*search->end || search->number != number))
		return 0;
	*search->out = number;
	return is_name ? 2 : 1;
}

int operate_look_up(struct reef_operator *op, enum reef_row_kind kind,
		    const char *name, uint32_t *out)
{
	struct search search = {.kind = kind, .name = name, .out = out};
	int rc;

	search.number =
		strtoul(name, &search.end, kind == REEF_ROW_SESSION ? 16 : 10);
	rc = reef_operator_list(op, kind, keep_match, &search);
	return rc > 0 ? 0 : rc < 0 ? rc : -ENOENT;
}

int operate_find(struct reef_operator *op, enum reef_row_kind kind,
		 const char *name, uint32_t *out)
{
	static const char *const words[] = {
		[REEF_ROW_NODE] = "node",
		[REEF_ROW_SPACE] = "space",
		[REEF_ROW_SESSION] = "session",
		[REEF_ROW_USER] = "user",
	};
	int rc = operate_look_up(op, kind, name, out);

	if (rc != -ENOENT)
		return rc;
	return operate_say(words[kind], "there is no %s \"%.80s\"", words[kind],
			   name);
}

bool operate_is_own_name(const char *name)
{
	return name[0] == '~';
}

int operate_refuse_own_name(const char *command, const char *name)
{
	return cmd_usage_error(command,
			       "\"%.80s\": names that begin with ~ are Reef's "
			       "own",
			       name);
}

struct reef_table *operate_table(const char *columns)
{
	struct reef_table *table = reef_table_create();
	char title[32];
	size_t size;

	reef_table_set_ascii(table, !reef_table_locale_is_utf8());
	for (;; columns += size + 1) {
		size = strcspn(columns, "|");
		snprintf(title, sizeof(title), "%.*s", (int)size - 1,
			 columns + 1);
		reef_table_column(table, title,
				  columns[0] == '<' ? REEF_TABLE_LEFT
						    : REEF_TABLE_RIGHT);
		if (!columns[size])
			return table;
	}
}

int operate_list(struct reef_operator *op, enum reef_row_kind kind,
		 const char *columns,
		 int (*add_row)(void *table, const struct reef_row *row))
{
	struct reef_table *table = operate_table(columns);
	int rc;

	rc = reef_operator_list(op, kind, add_row, table);
	if (!rc)
		rc = reef_table_print(table, stdout);
	reef_table_destroy(table);
	return rc;
}

const char *operate_node_state(const struct reef_row_node *row)
{
	switch (row->state) {
	case REEF_NODE_OK:
		return "ok";
	case REEF_NODE_DRAINING:
		return "draining";
	case REEF_NODE_DRAINED:
		return "drained";
	case REEF_NODE_DEAD:
		return row->incarnation ? "dead" : "expected";
	case REEF_NODE_AWAY:
		return "away";
	default:
		return "unknown";
	}
}

bool operate_is_linked(const struct reef_row_node *row)
{
	return !reef_node_is_gone(row->state) && !row->is_away;
}

const char *operate_node_text(const struct reef_row_node *row)
{
	return reef_node_is_gone(row->state) || operate_is_linked(row)
		       ? operate_node_state(row)
		       : "silent";
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

const char *operate_session_text(const struct reef_row_session *row)
{
	if (row->state == REEF_SESSION_ALIVE && !row->fabric.size)
		return "away";
	return operate_session_state(row->state);
}
