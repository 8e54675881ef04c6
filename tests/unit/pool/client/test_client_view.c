/* test_client_view.c - what a client believes of the rows that it is told:
 * (3) of keeper/view.h. */
#include "fixture/pool_world.h"
#include "pool/client/handle/space.h"
#include "pool/client/keeper/view.h"

#include <stdlib.h>
#include <string.h>

/* Tell the client of a life of a node, as an answer would. */
static int tell(struct member *member, struct reef_space *space,
		const struct client_node *node, uint64_t incarnation,
		uint64_t pool_epoch, uint8_t state)
{
	char *addresses = strdup(node->addresses);
	struct reef_cursor_out out = {0};
	struct reef_body body = {0};
	struct reef_row row = {
		.row = REEF_ROW_NODE,
		.node = {.number = node->id,
			 .state = state,
			 .incarnation = incarnation,
			 .pool_epoch = pool_epoch,
			 .domain = node->domain,
			 .addresses = reef_text_of(addresses)},
	};
	int rc;

	reef_row_encode(&row, &out);
	body.rows = out.bytes;
	body.rows_size = out.size;
	rc = out.failed ? -ENOMEM
			: client_view_apply_rows(member->client, space->space,
						 &body, NULL);
	free(out.bytes);
	free(addresses);
	return rc;
}

static int hears_late_rows(struct member *member)
{
	uint64_t address, life, epoch, value = 7;
	const struct client_node *node;
	struct reef_space *space;
	struct reef_link *link;
	uint32_t settled;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, 8, &address));
	TRY(reef_write(member->reef, address, &value, 8));
	for (node = member->client->nodes; node && !node->link;)
		node = node->next;
	WANT(node);
	life = node->incarnation;
	epoch = node->pool_epoch;
	WANT(epoch > 0);
	/* A life before this one: alive, in an epoch that is over; and dead in
	 * this epoch. */
	link = node->link;
	settled = node->settled;
	TRY(tell(member, space, node, life + 1, epoch - 1, REEF_NODE_OK));
	WANT(node->incarnation == life);
	TRY(tell(member, space, node, life + 1, epoch, REEF_NODE_DEAD));
	WANT(node->incarnation == life && node->link == link);
	WANT(node->settled == settled && node->pool_epoch == epoch);
	/* It dies; and the next one begins in the same epoch. */
	TRY(tell(member, space, node, life, epoch + 1, REEF_NODE_DEAD));
	WANT(node->incarnation == life);
	TRY(tell(member, space, node, life + 2, epoch + 1, REEF_NODE_OK));
	WANT(node->incarnation == life + 2 && !node->link);
	WANT(node->settled == node->hellos);
	TRY(tell(member, space, node, life, epoch, REEF_NODE_OK));
	TRY(tell(member, space, node, life, epoch + 1, REEF_NODE_DEAD));
	WANT(node->incarnation == life + 2);
	return 0;
}

static void client_view_late_row_brings_no_life_back(void **state)
{
	struct pool pool = {0};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, hears_late_rows);
	pool_finish(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_view_late_row_brings_no_life_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
