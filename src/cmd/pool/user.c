/* user.c - `reef user`: who may join the pool, with what, and how much of it
 * they may have. */
#include "base/units.h"
#include "cmd/operate.h"
#include "cmd/print/json.h"
#include "cmd/print/table.h"
#include "pool/keys.h"
#include "wire/states.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long sessions of a credential that was rotated go on. */
#define AFTER_NS UINT64_C(60000000000)
#define OWNER "owner"

/* The command's own flags. */
static struct {
	bool force, yes, now, json;
	const char *after;
} flags;

/* --- credentials --- */

/* Save the credential that the broker told, or print it; the answer is freed.
 */
static int give_credential(struct reef_answer *answer, const char *file)
{
	struct reef_credential credential = {
		.user = answer->body.reply.user_add.user,
		.era = answer->body.reply.user_add.era,
	};
	char text[REEF_KEY_TEXT_SIZE];

	memcpy(credential.key.bytes, answer->body.reply.user_add.secret,
	       sizeof(credential.key.bytes));
	reef_answer_free(answer);
	reef_credential_format(&credential, text);
	reef_key_wipe(&credential.key);
	return operate_give_secret("user", text, file);
}

static int add_user(struct reef_operator *op, const char *const *arguments,
		    uint32_t count)
{
	const struct reef_body body = {
		.ask.user_add.name = reef_text_of(arguments[0]),
	};
	struct reef_answer answer;
	int rc;

	if (!arguments[0][0])
		return cmd_usage_error("user", "a user needs a name");
	if (!strcmp(arguments[0], OWNER))
		return cmd_usage_error("user",
				       "\"" OWNER "\" is the owner of the "
				       "pool: another name, please");
	if (strlen(arguments[0]) > UINT16_MAX)
		return -ENAMETOOLONG;
	rc = reef_operator_call(op, REEF_POOL_USER_ADD, &body, &answer);
	return rc ? rc
		  : give_credential(&answer, count > 1 ? arguments[1] : NULL);
}

static int parse_after(uint64_t *out)
{
	*out = flags.now ? 0 : AFTER_NS;
	if (flags.now && flags.after)
		return cmd_usage_error("user", "--now or --after, not both");
	if (flags.after && reef_duration_parse(flags.after, out))
		return cmd_usage_error(
			"user", "--after: \"%.40s\" is not a time, as 10s",
			flags.after);
	return 0;
}

static int rotate_user(struct reef_operator *op, const char *const *arguments,
		       uint32_t count)
{
	const char *file = count > 1 ? arguments[1] : NULL;
	struct reef_body body = {0};
	struct reef_answer answer;
	int rc = parse_after(&body.ask.user_rotate.after_ns);

	/* What cannot be saved would be lost, and the old one void. */
	if (!rc && file && !access(file, F_OK))
		return operate_say("user", "%s: %s", file,
				   reef_error_text(-EEXIST));
	if (!rc && strcmp(arguments[0], OWNER) != 0)
		rc = operate_find(op, REEF_ROW_USER, arguments[0],
				  &body.ask.user_rotate.user);
	if (!rc)
		rc = reef_operator_call(op, REEF_POOL_USER_ROTATE, &body,
					&answer);
	return rc ? rc : give_credential(&answer, file);
}

/* --- removal --- */

struct having {
	uint32_t user;
	uint32_t sessions, spaces;
	uint64_t bytes;
};

static int count_session(void *context, const struct reef_row *row)
{
	struct having *having = context;

	having->sessions += row->session.user == having->user;
	return 0;
}

static int count_space(void *context, const struct reef_row *row)
{
	struct having *having = context;

	if (row->space.user == having->user &&
	    row->space.kind == REEF_SPACE_SHARED) {
		having->spaces++;
		having->bytes += row->space.used;
	}
	return 0;
}

/* Ask whoever sits there. 0: go on. */
static int confirm_removal(struct reef_operator *op, const char *name,
			   uint32_t user)
{
	struct having having = {.user = user};
	char answer[16] = "", size[16];
	int rc = reef_operator_list(op, REEF_ROW_SESSION, count_session,
				    &having);

	if (!rc)
		rc = reef_operator_list(op, REEF_ROW_SPACE, count_space,
					&having);
	if (rc || flags.yes)
		return rc;
	if (!isatty(STDIN_FILENO))
		return cmd_usage_error("user",
				       "--force asks first; --yes does not "
				       "need anybody to answer");
	printf("User %.80s: %u sessions end, %u spaces with %s become the "
	       "owner's.\nRemove? [y/N] ",
	       name, having.sessions, having.spaces,
	       reef_table_bytes(having.bytes, size));
	fflush(stdout);
	if (!fgets(answer, sizeof(answer), stdin) ||
	    (answer[0] != 'y' && answer[0] != 'Y'))
		return operate_say("user", "nothing was removed");
	return 0;
}

static int remove_user(struct reef_operator *op, const char *const *arguments,
		       uint32_t count)
{
	struct reef_body body = {0};
	struct reef_answer answer;
	uint32_t left;
	int rc = operate_find(op, REEF_ROW_USER, arguments[0],
			      &body.ask.user_remove.user);

	if (!rc && flags.force) {
		body.ask.user_remove.flags = REEF_POOL_FORCE;
		rc = confirm_removal(op, arguments[0],
				     body.ask.user_remove.user);
	}
	if (rc)
		return rc;
	rc = reef_operator_call(op, REEF_POOL_USER_REMOVE, &body, &answer);
	if (rc == -EBUSY)
		return operate_say(
			"user",
			"%.80s still has spaces or sessions; --force "
			"ends these, and gives those to the owner",
			arguments[0]);
	if (rc)
		return rc;
	left = answer.body.reply.user_remove.sessions;
	reef_answer_free(&answer);
	if (left)
		fprintf(stderr,
			"reef user: %u sessions are still being shut out; see "
			"`reef session list`\n",
			left);
	return 0;
}

/* --- limits --- */

/* How much a user has, and may have, as "3/10", or "3" where there is no
 * limit. */
static void add_use(struct reef_table *table, const struct reef_row_user *row,
		    uint32_t limit)
{
	char use[16], most[16];

	if (limit == REEF_LIMIT_BYTES) {
		reef_table_bytes(row->uses[limit], use);
		reef_table_bytes(row->limits[limit], most);
	} else {
		snprintf(use, sizeof(use), "%llu",
			 (unsigned long long)row->uses[limit]);
		snprintf(most, sizeof(most), "%llu",
			 (unsigned long long)row->limits[limit]);
	}
	if (row->limits[limit] == REEF_NO_LIMIT)
		reef_table_cell(table, "%s", use);
	else
		reef_table_cell(table, "%s/%s", use, most);
}

struct shown {
	uint32_t user;
	struct reef_table *table;
};

static int show_limits(void *context, const struct reef_row *any)
{
	const struct reef_row_user *row = &any->user;
	struct shown *shown = context;

	if (row->number != shown->user)
		return 0;
	for (uint32_t i = 0; i < REEF_LIMIT_COUNT; i++) {
		reef_table_cell(shown->table, "%s", operate_limits[i]);
		add_use(shown->table, row, i);
		reef_table_cell(shown->table, "%s",
				row->own & 1u << i ? "own" : "default");
		reef_table_end_row(shown->table);
	}
	return 0;
}

/* Parse WHAT=NUMBER. 1: it is none, and that was printed. */
static int parse_limit(const char *text, uint8_t *limit, uint64_t *value)
{
	const char *equals = strchr(text, '=');
	size_t size = equals ? (size_t)(equals - text) : 0;
	int rc = 0;

	for (*limit = 0; *limit < REEF_LIMIT_COUNT; ++*limit)
		if (size && size == strlen(operate_limits[*limit]) &&
		    !memcmp(operate_limits[*limit], text, size))
			break;
	if (*limit == REEF_LIMIT_COUNT)
		return cmd_usage_error(
			"user",
			"\"%.40s\" is not WHAT=NUMBER; WHAT is "
			"sessions, links, spaces, extents, names or "
			"bytes",
			text);
	equals++;
	if (!strcmp(equals, "none"))
		*value = REEF_NO_LIMIT;
	else if (!strcmp(equals, "default"))
		*value = 0;
	else if (!strcmp(equals, "0"))
		rc = cmd_usage_error("user",
				     "a limit of 0 leaves nothing to use; "
				     "`none` means no limit");
	else
		rc = operate_size("user", equals, value);
	return rc;
}

static int limit_user(struct reef_operator *op, const char *const *arguments,
		      uint32_t count)
{
	struct shown shown = {0};
	struct reef_body body = {0};
	int rc = operate_find(op, REEF_ROW_USER, arguments[0], &shown.user);

	/* All are understood before any is set. */
	for (uint32_t i = 1; !rc && i < count; i++)
		rc = parse_limit(arguments[i], &body.ask.user_limit.limit,
				 &body.ask.user_limit.value);
	body.ask.user_limit.user = shown.user;
	for (uint32_t i = 1; !rc && i < count; i++) {
		parse_limit(arguments[i], &body.ask.user_limit.limit,
			    &body.ask.user_limit.value);
		rc = reef_operator_call(op, REEF_POOL_USER_LIMIT, &body, NULL);
	}
	if (rc || count > 1)
		return rc;
	shown.table = operate_table("<what|>use/limit|<from");
	rc = reef_operator_list(op, REEF_ROW_USER, show_limits, &shown);
	if (!rc)
		rc = reef_table_print(shown.table, stdout);
	reef_table_destroy(shown.table);
	return rc;
}

/* --- lists --- */

static int add_row(void *context, const struct reef_row *any)
{
	const struct reef_row_user *row = &any->user;

	reef_table_cell(context, "%u", row->number);
	reef_table_cell(context, "%.*s", (int)row->name.size, row->name.bytes);
	reef_table_cell(context, "%u", row->era);
	for (uint32_t i = 0; i < REEF_LIMIT_COUNT; i++)
		add_use(context, row, i);
	reef_table_end_row(context);
	return 0;
}

/* One object a user; a limit that there is not is null. */
static int print_json_row(void *context, const struct reef_row *any)
{
	const struct reef_row_user *row = &any->user;
	struct reef_json *json = context;

	reef_json_begin(json, NULL, REEF_JSON_OBJECT);
	reef_json_number(json, "user", row->number);
	reef_json_text(json, "name", row->name);
	reef_json_number(json, "era", row->era);
	for (uint32_t i = 0; i < REEF_LIMIT_COUNT; i++) {
		reef_json_begin(json, operate_limits[i], REEF_JSON_OBJECT);
		reef_json_number(json, "use", row->uses[i]);
		if (row->limits[i] == REEF_NO_LIMIT)
			reef_json_null(json, "limit");
		else
			reef_json_number(json, "limit", row->limits[i]);
		reef_json_bool(json, "own", row->own & 1u << i);
		reef_json_end(json);
	}
	reef_json_end(json);
	return 0;
}

static int list_users(struct reef_operator *op, const char *const *arguments,
		      uint32_t count)
{
	struct reef_json json = {.stream = stdout};
	int rc;

	if (flags.json) {
		reef_json_begin(&json, NULL, REEF_JSON_ARRAY);
		rc = reef_operator_list(op, REEF_ROW_USER, print_json_row,
					&json);
		reef_json_end(&json);
		return rc;
	}
	return operate_list(op, REEF_ROW_USER,
			    ">user|<name|>era|>sessions|>links|>spaces|"
			    ">extents|>names|>bytes",
			    add_row);
}

int cmd_user(int argc, char **argv)
{
	static const struct verb verbs[] = {
		{"add", "NAME [FILE]",
		 "make a user; the credential goes to FILE or stdout", 1, 2,
		 add_user},
		{"list", "", "show all users: what they have, and may have", 0,
		 0, list_users},
		{"limit", "USER [WHAT=NUMBER]...",
		 "show or set how much a user may have", 1,
		 1 + REEF_LIMIT_COUNT, limit_user},
		{"rotate", "USER|owner [FILE]",
		 "make a new credential: the one before is void", 1, 2,
		 rotate_user},
		{"remove", "USER", "remove a user: the credential is void", 1,
		 1, remove_user},
		{0},
	};
	static const struct reef_config_flag table[] = {
		{"force", NULL,
		 "remove: end sessions, give spaces to the owner", &flags.force,
		 NULL},
		{"yes", NULL, "do not ask before --force", &flags.yes, NULL},
		{"after", "TIME",
		 "rotate: old sessions go on for so long; 1min", NULL,
		 &flags.after},
		{"now", NULL, "rotate: those sessions end at once", &flags.now,
		 NULL},
		{"json", NULL, "list: as JSON", &flags.json, NULL},
		{0},
	};

	return operate_with_flags(
		argc, argv,
		"Users of the pool. A credential is a secret: keep it in "
		"a file that only its\nowner may read, and name it in "
		"REEF_CREDENTIAL.\n",
		verbs, table);
}
