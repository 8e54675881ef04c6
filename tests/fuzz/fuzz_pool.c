/* fuzz_pool.c - what peers of the pool say: a header, a body, rows.
 *
 * Input: the bytes of one message. */
#include "fuzz.h"

#include "wire/pool.h"

#include <reef/error.h>

static void each_row(const struct reef_body *body)
{
	struct reef_cursor_in in = {body->rows, body->rows_size, false};
	struct reef_cursor_out again = {0};
	struct reef_row row;
	int rc;

	while ((rc = reef_row_decode(&in, &row)) > 0)
		reef_row_encode(&row, &again);
	FUZZ_CHECK(rc == 0 && again.size == body->rows_size);
	FUZZ_CHECK(again.size == 0 ||
		   memcmp(again.bytes, body->rows, again.size) == 0);
	free(again.bytes);
}

/* What is decoded is encoded to the same bytes, and its rows are. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct reef_cursor_out again = {0};
	struct reef_pool_header header;
	struct reef_body body;
	int rc;

	rc = reef_pool_decode(bytes, size, &header, &body);
	FUZZ_CHECK(rc == 0 || rc == -REEF_EPROTO || rc == -REEF_EVERSION);
	if (rc)
		return 0;
	reef_pool_encode(&header, &body, &again);
	FUZZ_CHECK(!again.failed && again.size == size);
	FUZZ_CHECK(memcmp(again.bytes, bytes, size) == 0);
	free(again.bytes);
	each_row(&body);
	return 0;
}
