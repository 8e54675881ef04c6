/* door.c - see door.h. */
#include "gateway/redis/internal.h"

struct redis_door_config *redis_door_config(struct redis_door *door)
{
	return &door->config;
}

const struct redis_door_options *
redis_door_options(const struct redis_door *door)
{
	return &door->options;
}

void redis_door_info(const struct redis_door *door, struct redis_door_info *out)
{
	*out = door->info;
	out->clients = door->client_count;
}

const char *redis_door_addresses(const struct redis_door *door)
{
	return door->addresses;
}

int redis_door_each(struct redis_door *door, struct redis_thread *self,
		    int (*each)(void *context, struct redis_thread *thread),
		    void *context)
{
	uint32_t i;
	int rc = 0;

	pthread_mutex_unlock(&self->lock);
	for (i = 0; !rc && i < door->thread_count; i++) {
		pthread_mutex_lock(&door->threads[i].lock);
		rc = each(context, &door->threads[i]);
		pthread_mutex_unlock(&door->threads[i].lock);
	}
	pthread_mutex_lock(&self->lock);
	return rc;
}

bool redis_door_password(const struct redis_door *door, const char *bytes,
			 size_t size)
{
	(void)bytes;
	(void)size;
	return !door->info.has_password;
}
