/* user.c - `reef user`: who may join the pool. */
#include "cmd/operate.h"
#include "cmd/table.h"
#include "pool/keys.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <string.h>

static int add_user(struct reef_operator *op, const char *const *arguments,
		    uint32_t count)
{
	const struct reef_body body = {
		.ask.user_add.name = reef_text_of(arguments[0]),
	};
	struct reef_credential credential = {0};
	char text[REEF_KEY_TEXT_SIZE];
	struct reef_answer answer;
	int rc;

	if (!arguments[0][0])
		return operate_say("user", "a user needs a name");
	if (strlen(arguments[0]) > UINT16_MAX)
		return -ENAMETOOLONG;
	rc = reef_operator_call(op, REEF_POOL_USER_ADD, &body, &answer);
	if (rc)
		return rc;
	credential.user = answer.body.reply.user_add.user;
	credential.era = answer.body.reply.user_add.era;
	memcpy(credential.key.bytes, answer.body.reply.user_add.secret,
	       sizeof(credential.key.bytes));
	reef_answer_free(&answer);
	if (count > 1) {
		rc = reef_credential_save(arguments[1], &credential);
		if (rc)
			rc = operate_say("user", "%s: %s", arguments[1],
					 reef_error_text(rc));
	} else {
		reef_credential_format(&credential, text);
		printf("%s\n", text);
		explicit_bzero(text, sizeof(text));
	}
	reef_key_wipe(&credential.key);
	return rc;
}

static int remove_user(struct reef_operator *op, const char *const *arguments,
		       uint32_t count)
{
	struct reef_body body = {0};
	int rc = operate_find(op, REEF_ROW_USER, arguments[0],
			      &body.ask.user_remove.user);

	return rc ? rc
		  : reef_operator_call(op, REEF_POOL_USER_REMOVE, &body, NULL);
}

static int add_row(void *context, const struct reef_row *any)
{
	const struct reef_row_user *row = &any->user;

	reef_table_cell(context, "%u", row->number);
	reef_table_cell(context, "%.*s", (int)row->name.size, row->name.bytes);
	reef_table_cell(context, "%u", row->era);
	reef_table_cell(context, "%u", row->sessions);
	reef_table_end_row(context);
	return 0;
}

static int list_users(struct reef_operator *op, const char *const *arguments,
		      uint32_t count)
{
	struct reef_table *table = operate_table(">user|<name|>era|>sessions");
	int rc;

	rc = reef_operator_list(op, REEF_ROW_USER, add_row, table);
	if (!rc)
		rc = reef_table_print(table, stdout);
	reef_table_destroy(table);
	return rc;
}

int cmd_user(int argc, char **argv)
{
	static const struct verb verbs[] = {
		{"add", "NAME [FILE]",
		 "make a user; the credential goes to FILE or stdout", 1, 2,
		 add_user},
		{"remove", "USER", "remove a user: the credential is void", 1,
		 1, remove_user},
		{"list", "", "show all users", 0, 0, list_users},
		{0},
	};

	return operate(
		argc, argv,
		"Users of the pool. A credential is a secret: keep it in "
		"a file that only its\nowner may read, and name it in "
		"REEF_CREDENTIAL.\n",
		verbs);
}
