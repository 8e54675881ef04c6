/* session.c - `reef session`: end one, as if its lease had run out. */
#include "cmd/operate.h"
#include "cmd/print/table.h"

#include <reef/error.h>
#include <stdio.h>

static int end_session(struct reef_operator *op, const char *const *arguments,
		       uint32_t count)
{
	struct reef_body body = {0};
	int rc = operate_find(op, REEF_ROW_SESSION, arguments[0],
			      &body.ask.session_end.session);

	return rc ? rc
		  : reef_operator_call(op, REEF_POOL_SESSION_END, &body, NULL);
}

static int add_row(void *context, const struct reef_row *any)
{
	const struct reef_row_session *row = &any->session;
	char age[16], size[16];

	reef_table_cell(context, "%08x", row->id);
	reef_table_cell(context, "%s", operate_session_text(row));
	reef_table_cell(context, "%u", row->pid);
	reef_table_cell(context, "%s",
			row->waiting ? reef_table_bytes(row->waiting, size)
				     : "-");
	reef_table_cell(context, "%s",
			row->holds_ns
				? reef_table_time((double)row->holds_ns, age)
				: "-");
	reef_table_cell(context, "%.*s", (int)row->program.size,
			row->program.bytes);
	reef_table_end_row(context);
	return 0;
}

static int list_sessions(struct reef_operator *op, const char *const *arguments,
			 uint32_t count)
{
	return operate_list(op, REEF_ROW_SESSION,
			    ">session|<state|>pid|>waiting|>holds|<program",
			    add_row);
}

int cmd_session(int argc, char **argv)
{
	static const struct verb verbs[] = {
		{"list", "", "show sessions, but not those that are recovered",
		 0, 0, list_sessions},
		{"end", "SESSION",
		 "fence it; on this machine that kills its process", 1, 1,
		 end_session},
		{0},
	};

	return operate(argc, argv,
		       "Sessions: the processes that have joined the pool.\n",
		       verbs);
}
