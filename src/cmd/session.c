/* session.c - `reef session`: end one, as if its lease had run out. */
#include "cmd/operate.h"
#include "cmd/table.h"

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

static int print_session(void *context, const struct reef_row *any)
{
	const struct reef_row_session *row = &any->session;

	char age[16], size[16];

	printf("%08x  %-9s  pid %-8u  %.*s", row->id, operate_session_text(row),
	       row->pid, (int)row->program.size, row->program.bytes);
	if (row->waiting)
		printf("  %s wait", reef_table_bytes(row->waiting, size));
	if (row->holds_ns)
		printf("  holds memory back for %s",
		       reef_table_time((double)row->holds_ns, age));
	printf("\n");
	return 0;
}

static int list_sessions(struct reef_operator *op, const char *const *arguments,
			 uint32_t count)
{
	return reef_operator_list(op, REEF_ROW_SESSION, print_session, NULL);
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
