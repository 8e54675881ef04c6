/* janitor.c - a client that recovers what dead sessions left, in any space.
 *
 *   begin: JANITOR --> the broker asks it first: RECOVER space, sessions
 *                        opens the space, if it has not yet
 *                        adopts, judges (handle/recover.c)
 *                        gives everything away again (heap/relinquish.c)
 *
 * It is a client like any other, and is itself recovered by the next one. What
 * it must not do: expire or fence; act before FENCED; free what is kept, or of
 * a kind that it does not know; be inside reef_enter for longer than it takes
 * to judge a block; grow a space. */
#include "pool/client/client.h"

#include "pool/client/handle/handle.h"
#include "pool/client/keeper/keeper.h"

int reef_janitor_run(struct reef *reef, int (*wait)(void *context),
		     void *context)
{
	struct reef_client *client = reef->client;
	struct reef_body body = {0};
	int rc;

	/* Before it is asked, and so that the keeper says it again whenever it
	 * comes back to a broker. */
	atomic_store(&client->janitor, true);
	rc = reef_client_ask(reef, REEF_POOL_JANITOR, false, &body, NULL);
	while (!rc) {
		if (wait(context))
			return 0;
		rc = client_over(client);
	}
	return rc;
}
