/* space.c - `reef space`: what memory belongs to. */
#include "cmd/image.h"
#include "cmd/operate.h"
#include "cmd/print/table.h"
#include "cmd/view.h"
#include "pool/keys.h"
#include "wire/states.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <string.h>

static int parse_quota(const char *text, uint64_t *out)
{
	if (!strcmp(text, "0"))
		return cmd_usage_error("space",
				       "a quota of 0 leaves nothing to "
				       "use; `none` means no limit");
	return operate_size("space", text, out);
}

/* What the flags of `reef space` say. */
static struct {
	const char *copies;
	bool strict;
} wish;

/* Read how many copies are asked for; 0: nothing is said. */
static int parse_copies(uint32_t *copies)
{
	*copies = 0;
	if (wish.copies &&
	    (!strcmp(wish.copies, "1") || !strcmp(wish.copies, "2")))
		*copies = (uint32_t)(wish.copies[0] - '0');
	else if (wish.copies)
		return cmd_usage_error("space",
				       "a space has 1 or 2 copies, not "
				       "\"%.20s\"",
				       wish.copies);
	return 0;
}

/* Fill in how many copies a new space has. */
static int fill_copies(struct reef_ask_space_open *ask)
{
	int rc = parse_copies(&ask->copies);

	if (rc)
		return rc;
	if (wish.strict)
		ask->flags |= REEF_POOL_STRICT;
	if (!ask->copies)
		ask->copies = 1;
	if (ask->copies > 1 && ask->keeping == REEF_KEEPING_REVOCABLE)
		return cmd_usage_error("space",
				       "a revocable space has no copies: its "
				       "memory may go at any time");
	return 0;
}

/* Refuse a quota in which nothing could ever be put. */
static int check_least(const struct reef_ask_space_open *ask)
{
	const uint64_t least = REEF_EXTENT_SIZE_LEAST * ask->copies;
	char text[16];

	if (!ask->quota || ask->quota >= least)
		return 0;
	return cmd_usage_error("space",
			       "a quota is at least %s%s: with less there is "
			       "no room for anything",
			       reef_table_bytes(least, text),
			       ask->copies > 1 ? " with 2 copies" : "");
}

static int create_space(struct reef_operator *op, const char *const *arguments,
			uint32_t count)
{
	struct reef_body body = {
		.ask.space_open =
			{
				.name = reef_text_of(arguments[0]),
				.flags = REEF_POOL_CREATE | REEF_POOL_EXCLUSIVE,
				.kind = REEF_SPACE_SHARED,
				.keeping = REEF_KEEPING_KEPT,
			},
	};
	struct reef_body used = {0};
	struct reef_answer answer;
	int rc;

	if (!arguments[0][0])
		return cmd_usage_error("space", "a space needs a name");
	if (strlen(arguments[0]) > UINT16_MAX)
		return -ENAMETOOLONG;
	for (uint32_t i = 1; i < count; i++) {
		if (!strcmp(arguments[i], "revocable")) {
			body.ask.space_open.keeping = REEF_KEEPING_REVOCABLE;
			continue;
		}
		rc = parse_quota(arguments[i], &body.ask.space_open.quota);
		if (rc)
			return rc;
	}
	rc = fill_copies(&body.ask.space_open);
	if (!rc)
		rc = check_least(&body.ask.space_open);
	if (rc)
		return rc;
	rc = reef_operator_call(op, REEF_POOL_SPACE_OPEN, &body, &answer);
	if (rc == -ENOSPC && wish.strict)
		return operate_say("space", "the pool has fewer nodes than "
					    "copies are asked for (ENOSPC)");
	if (rc == -EPERM)
		return operate_say("space",
				   "\"%.80s\" is a name that only the pool's "
				   "owner may give a space (EPERM)",
				   arguments[0]);
	if (rc)
		return rc;
	used.ask.space_close.space = answer.body.reply.space_open.space;
	reef_answer_free(&answer);
	return reef_operator_call(op, REEF_POOL_SPACE_CLOSE, &used, NULL);
}

static int drop_space(struct reef_operator *op, const char *const *arguments,
		      uint32_t count)
{
	struct reef_body body = {0};
	int rc = operate_find(op, REEF_ROW_SPACE, arguments[0],
			      &body.ask.space_drop.space);

	return rc ? rc
		  : reef_operator_call(op, REEF_POOL_SPACE_DROP, &body, NULL);
}

static int set_quota(struct reef_operator *op, const char *const *arguments,
		     uint32_t count)
{
	struct reef_body body = {0};
	int rc = 0;

	if (strcmp(arguments[1], "none"))
		rc = parse_quota(arguments[1], &body.ask.space_quota.quota);
	if (!rc)
		rc = operate_find(op, REEF_ROW_SPACE, arguments[0],
				  &body.ask.space_quota.space);
	if (!rc)
		rc = reef_operator_call(op, REEF_POOL_SPACE_QUOTA, &body, NULL);
	return rc == -EDQUOT
		       ? operate_say("space",
				     "%.80s uses more than that already: see "
				     "`reef space list`",
				     arguments[0])
		       : rc;
}

static int parse_rights(const char *text, uint8_t *out)
{
	if (!strcmp(text, "read"))
		*out = REEF_RIGHT_READ;
	else if (!strcmp(text, "write"))
		*out = REEF_RIGHT_READ | REEF_RIGHT_WRITE;
	else if (!strcmp(text, "manage"))
		*out = REEF_RIGHT_ALL;
	else
		return cmd_usage_error(
			"space",
			"a token may be for read, write or manage, "
			"not \"%.40s\"",
			text);
	return 0;
}

static int make_token(struct reef_operator *op, const char *const *arguments,
		      uint32_t count)
{
	struct reef_body body = {0};
	struct reef_token made = {0};
	char text[REEF_KEY_TEXT_SIZE];
	struct reef_answer answer;
	int rc;

	rc = parse_rights(count > 1 ? arguments[1] : "write",
			  &body.ask.space_token.rights);
	if (!rc)
		rc = operate_find(op, REEF_ROW_SPACE, arguments[0],
				  &body.ask.space_token.space);
	if (rc)
		return rc;
	rc = reef_operator_call(op, REEF_POOL_SPACE_TOKEN, &body, &answer);
	if (rc)
		return rc;
	made.space = answer.body.reply.space_token.space;
	made.era = answer.body.reply.space_token.era;
	made.rights = answer.body.reply.space_token.rights;
	memcpy(made.key.bytes, answer.body.reply.space_token.secret,
	       sizeof(made.key.bytes));
	reef_answer_free(&answer);
	reef_token_format(&made, text);
	reef_key_wipe(&made.key);
	return operate_give_secret("space", text,
				   count > 2 ? arguments[2] : NULL);
}

static int revoke_tokens(struct reef_operator *op, const char *const *arguments,
			 uint32_t count)
{
	struct reef_body body = {0};
	int rc = operate_find(op, REEF_ROW_SPACE, arguments[0],
			      &body.ask.space_revoke.space);

	return rc ? rc
		  : reef_operator_call(op, REEF_POOL_SPACE_REVOKE, &body, NULL);
}

static int forget_lost(struct reef_operator *op, const char *const *arguments,
		       uint32_t count)
{
	struct reef_body body = {0};
	int rc = operate_find(op, REEF_ROW_SPACE, arguments[0],
			      &body.ask.space_forget.space);

	return rc ? rc
		  : reef_operator_call(op, REEF_POOL_SPACE_FORGET, &body, NULL);
}

static int add_row(void *context, const struct reef_row *any)
{
	const struct reef_row_space *row = &any->space;
	char used[16], lost[16], limit[16], copies[VIEW_COPIES_SIZE];

	reef_table_cell(context, "%u", row->number);
	reef_table_cell(context, "%.*s", (int)row->name.size, row->name.bytes);
	reef_table_cell(context, "%s",
			row->kind == REEF_SPACE_SCRATCH ? "scratch" : "shared");
	reef_table_cell(context, "%s",
			row->keeping == REEF_KEEPING_REVOCABLE ? "revocable"
							       : "kept");
	reef_table_cell(context, "%s", reef_table_bytes(row->used, used));
	reef_table_cell(context, "%s", reef_table_bytes(row->lost, lost));
	reef_table_cell(context, "%s",
			row->quota ? reef_table_bytes(row->quota, limit) : "-");
	reef_table_cell(context, "%s", view_copies(row, copies));
	reef_table_end_row(context);
	return 0;
}

static int restore_space(struct reef_operator *op, const char *const *arguments,
			 uint32_t count)
{
	uint32_t copies;
	int rc = parse_copies(&copies);

	return rc ? rc : cmd_space_restore(arguments, count, (uint8_t)copies);
}

static int list_spaces(struct reef_operator *op, const char *const *arguments,
		       uint32_t count)
{
	return operate_list(
		op, REEF_ROW_SPACE,
		">space|<name|<kind|<keeping|>used|>lost|>quota|<copies",
		add_row);
}

int cmd_space(int argc, char **argv)
{
	static const struct verb verbs[] = {
		{"list", "", "show all spaces", 0, 0, list_spaces},
		{"create", "NAME [QUOTA] [revocable] [--copies 1|2] [--strict]",
		 "make a space", 1, 3, create_space},
		{"drop", "SPACE", "remove a space with all that is in it", 1, 1,
		 drop_space},
		{"quota", "SPACE SIZE|none", "limit the memory it may take", 2,
		 2, set_quota},
		{"token", "SPACE [read|write|manage [FILE]]",
		 "print or save a token, which lets others in", 1, 3,
		 make_token},
		{"revoke", "SPACE", "make all tokens of the space void", 1, 1,
		 revoke_tokens},
		{"forget", "SPACE", "count what was lost with nodes no more", 1,
		 1, forget_lost},
		{"save", "SPACE FILE [TIME]",
		 "copy a space in use to a file, every TIME", 2, 3,
		 cmd_space_save},
		{"restore", "FILE [NAME] [--copies 1|2]",
		 "make the space that a file holds", 1, 2, restore_space},
		{0},
	};

	static const struct reef_config_flag flags[] = {
		{"copies", "1|2",
		 "create, restore: copies of it; 1, or as it had", NULL,
		 &wish.copies},
		{"strict", NULL,
		 "create: it never grows by memory with fewer copies",
		 &wish.strict, NULL},
		{0},
	};

	return operate_with_flags(
		argc, argv,
		"Spaces: what memory belongs to; the unit of sharing, quota "
		"and access. A token\nis a secret, and goes into "
		"reef_space_options.\n",
		verbs, flags);
}
