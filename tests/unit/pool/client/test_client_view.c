/* test_client_view.c - what a client believes of the rows that it is told:
 * (3) of keeper/view.h; and what it keeps of a space that it could not open. */
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

/* --- a space that could not be opened --- */

/* One pool at a time: what happens at the batches of an open. */
static struct {
	bool is_counting;
	uint32_t posts, cut_at;
	bool is_cut;
} opening;

/* A pool epoch is taken in while the broker is asked, so the space has to be
 * refreshed; and the broker is out of reach from some batch on. */
static void disturb_open(struct member *member, bool is_posted)
{
	if (!opening.is_counting || is_posted)
		return;
	opening.posts++;
	if (opening.posts == 1)
		member->client->pool_epoch++;
	if (opening.posts == opening.cut_at) {
		opening.is_cut = true;
		reef_sim_partition(member->host, member->pool->host, true);
	}
}

static int opens_in_vain(struct member *member)
{
	const struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	const char *name = member->pool->note[0] ? NULL : "other";
	struct client_space *known;
	struct reef_space *space;
	uint64_t refs = 0;
	int rc;

	TRY(member_space(member, &space));
	opening.is_counting = true;
	rc = reef_space_open(member->reef, name, name ? &options : NULL,
			     &space);
	opening.is_counting = false;
	reef_sim_partition(member->host, member->pool->host, false);
	for (known = member->client->spaces; known; known = known->next)
		refs += known->refs;
	WANT(refs == 1 + !rc);
	member->pool->note[1] = rc != 0;
	return 0;
}

static void run_openings(bool scratch)
{
	uint32_t failures = 0, at = 0;

	do {
		struct pool pool = {
			.ttl_ns = 60 * SECOND,
			.patience_ns = 100 * MILLISECOND,
			.posts = disturb_open,
			.note[0] = scratch,
		};

		memset(&opening, 0, sizeof(opening));
		opening.cut_at = ++at;
		pool_start(&pool, at);
		pool_add(&pool, opens_in_vain);
		pool_finish(&pool);
		failures += pool.note[1] != 0;
	} while (opening.is_cut);
	print_message("%u of %u failed\n", failures, at);
	assert_true(failures > 1);
}

static void client_view_open_in_vain_keeps_nothing(void **state)
{
	(void)state;
	run_openings(false);
	run_openings(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_view_late_row_brings_no_life_back),
		cmocka_unit_test(client_view_open_in_vain_keeps_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
