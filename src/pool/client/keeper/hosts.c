/* hosts.c - the hosts by which others reach this machine, as links tell. */
#include "pool/client/keeper/keeper.h"

#include <string.h>

/* True for 127.0.0.1 and such, which are used only as long as nothing better is
 * known. */
static bool is_loopback(const char *host)
{
	return !strncmp(host, "127.", 4) || !strcmp(host, "[::1]") ||
	       !strcmp(host, "localhost");
}

static bool is_wildcard(const char *host)
{
	return !*host || !strcmp(host, "0.0.0.0") || !strcmp(host, "[::]");
}

static void learn_host(struct reef_client *client, uint32_t fabric,
		       const char *host)
{
	char *known = client->hosts[fabric];

	if (is_wildcard(host) || strlen(host) > REEF_HOST_MAX)
		return;
	if (!*known || (is_loopback(known) && !is_loopback(host)))
		memcpy(known, host, strlen(host) + 1);
}

/* Whoever is reached through shm is on this machine, so its hosts are ours. */
static void learn_hosts(struct reef_client *client, const char *text)
{
	char host[REEF_HOST_MAX + 1];
	size_t begin, end;
	int fabric;

	for (; *(text += strspn(text, " ")); text += strcspn(text, " ")) {
		fabric = reef_mesh_find(client->options.mesh, text);
		if (fabric < 0 || !strncmp(text, "shm:", 4))
			continue;
		/* KIND:HOST:PORT, and HOST may have colons. */
		begin = strcspn(text, ":") + 1;
		end = strcspn(text, " ");
		while (end > begin && text[end] != ':')
			end--;
		if (end - begin > REEF_HOST_MAX)
			continue;
		memcpy(host, text + begin, end - begin);
		host[end - begin] = '\0';
		learn_host(client, (uint32_t)fabric, host);
	}
}

void client_hosts_learn(struct reef_client *client,
			const struct reef_link *link, const char *addresses)
{
	struct reef_mesh *mesh = client->options.mesh;

	if (!link) /* the link was lost again */
		return;
	pthread_mutex_lock(&client->lock);
	for (uint32_t i = 0; i < reef_mesh_count(mesh); i++)
		if (reef_mesh_fabric(mesh, i) == reef_link_fabric(link))
			learn_host(client, i, reef_link_host(link));
	if (!strcmp(reef_fabric_kind(reef_link_fabric(link)), "shm"))
		learn_hosts(client, addresses);
	pthread_mutex_unlock(&client->lock);
}
