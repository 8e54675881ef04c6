/* node.c - `reef node`: run one; or, with a verb, manage those of the pool. */
#include "cmd/operate.h"
#include "cmd/print/table.h"
#include "cmd/serve/serve.h"
#include "pool/keys.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <string.h>

static int add_node(struct reef_operator *op, const char *const *arguments,
		    uint32_t count)
{
	const struct reef_body body = {
		.ask.node_add.name = reef_text_of(arguments[0]),
	};
	char text[REEF_KEY_TEXT_SIZE];
	struct reef_node_key key;
	struct reef_answer answer;
	int rc;

	if (!arguments[0][0])
		return cmd_usage_error("node", "a node needs a name");
	if (strlen(arguments[0]) > UINT16_MAX)
		return -ENAMETOOLONG;
	rc = reef_operator_call(op, REEF_POOL_NODE_ADD, &body, &answer);
	if (rc == -EEXIST)
		return operate_say("node", "the pool has a node called %s",
				   arguments[0]);
	if (rc)
		return rc;
	key.node = answer.body.reply.node_add.node;
	memcpy(key.key.bytes, answer.body.reply.node_add.secret,
	       sizeof(key.key.bytes));
	reef_answer_free(&answer);
	reef_node_key_format(&key, text);
	reef_key_wipe(&key.key);
	return operate_give_secret("node", text,
				   count > 1 ? arguments[1] : NULL);
}

static int set_drain(struct reef_operator *op, const char *name, uint32_t flags)
{
	struct reef_body body = {.ask.node_drain.flags = flags};
	int rc = operate_find(op, REEF_ROW_NODE, name,
			      &body.ask.node_drain.node);

	return rc ? rc
		  : reef_operator_call(op, REEF_POOL_NODE_DRAIN, &body, NULL);
}

static int drain_node(struct reef_operator *op, const char *const *arguments,
		      uint32_t count)
{
	int rc = set_drain(op, arguments[0], 0);

	if (!rc)
		printf("%s is being drained; `reef status` shows how far.\n",
		       arguments[0]);
	return rc;
}

static int undrain_node(struct reef_operator *op, const char *const *arguments,
			uint32_t count)
{
	return set_drain(op, arguments[0], REEF_POOL_DRAIN_STOP);
}

static int reclaim_memory(struct reef_operator *op,
			  const char *const *arguments, uint32_t count)
{
	struct reef_body body = {0};
	struct reef_answer answer;
	char size[16];
	int rc;

	rc = operate_size("node", arguments[1], &body.ask.node_reclaim.bytes);
	if (!rc)
		rc = operate_find(op, REEF_ROW_NODE, arguments[0],
				  &body.ask.node_reclaim.node);
	if (rc)
		return rc;
	rc = reef_operator_call(op, REEF_POOL_NODE_RECLAIM, &body, &answer);
	if (rc)
		return rc;
	printf("%s of revocable memory will go back to %s.\n",
	       reef_table_bytes(answer.body.reply.node_reclaim.bytes, size),
	       arguments[0]);
	reef_answer_free(&answer);
	return 0;
}

static int remove_node(struct reef_operator *op, const char *const *arguments,
		       uint32_t count)
{
	struct reef_body body = {0};
	int rc = operate_find(op, REEF_ROW_NODE, arguments[0],
			      &body.ask.node_remove.node);

	if (!rc)
		rc = reef_operator_call(op, REEF_POOL_NODE_REMOVE, &body, NULL);
	if (rc == -EBUSY)
		return operate_say("node",
				   "%s is in use: drain it, then stop "
				   "it, then remove it",
				   arguments[0]);
	return rc;
}

static int add_row(void *context, const struct reef_row *any)
{
	const struct reef_row_node *row = &any->node;
	char size[16], used[16];

	reef_table_cell(context, "%.*s", (int)row->name.size, row->name.bytes);
	reef_table_cell(context, "%s", operate_node_text(row));
	reef_table_cell(context, "%s", reef_table_bytes(row->capacity, size));
	reef_table_cell(context, "%s", reef_table_bytes(row->used, used));
	reef_table_cell(context, "%u", row->extents);
	reef_table_end_row(context);
	return 0;
}

static int list_nodes(struct reef_operator *op, const char *const *arguments,
		      uint32_t count)
{
	return operate_list(op, REEF_ROW_NODE,
			    "<node|<state|>capacity|>used|>extents", add_row);
}

static const struct verb verbs[] = {
	{"list", "", "show all nodes", 0, 0, list_nodes},
	{"add", "NAME [FILE]",
	 "let a node come; its key goes to FILE or stdout", 1, 2, add_node},
	{"drain", "NODE", "move what it holds elsewhere", 1, 1, drain_node},
	{"undrain", "NODE", "let it be used again", 1, 1, undrain_node},
	{"reclaim", "NODE SIZE", "take revocable memory back", 2, 2,
	 reclaim_memory},
	{"remove", "NODE",
	 "forget one that is dead or drained: its key is void", 1, 1,
	 remove_node},
	{0},
};

int cmd_node(int argc, char **argv)
{
	const bool is_verb = argc > 1 && argv[1][0] != '-';
	int rc = 0;

	/* Whoever asks for all that it takes is told of both forms. */
	if (is_verb || cmd_is_listened())
		rc = operate(argc, argv,
			     "Nodes of the pool. Without a verb: run one; see "
			     "reef node --help.\n",
			     verbs);
	if (is_verb || rc)
		return rc;
	return serve(argc, argv, false, true,
		     "usage: reef node [OPTIONS]\n"
		     "       reef node list\n"
		     "       reef node add NAME [FILE]\n"
		     "       reef node drain|undrain|remove NODE\n"
		     "       reef node reclaim NODE SIZE\n\n"
		     "Lends memory of this machine to a pool, in the "
		     "foreground, with the key that\n`reef node add` makes "
		     "for it. With a verb: manages the nodes of the pool.\n");
}
