/* help.c - the answers of HELP. */
#include "gateway/redis/commands/docs/help.h"

#include <stdio.h>

void redis_reply_help(struct redis_client *client, const char *const *lines)
{
	const struct redis_command *command = client->command->parent;
	char text[80];
	uint32_t count = 0;
	size_t i;

	while (lines[count])
		count++;
	redis_reply_array(&client->reply, count + 3);
	snprintf(text, sizeof(text),
		 "%s <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		 command->name);
	for (i = 0; i < sizeof(text) && text[i] && text[i] != ' '; i++)
		if (text[i] >= 'a' && text[i] <= 'z')
			text[i] = (char)(text[i] - 'a' + 'A');
	redis_reply_status(&client->reply, text);
	for (i = 0; i < count; i++)
		redis_reply_status(&client->reply, lines[i]);
	redis_reply_status(&client->reply, "HELP");
	redis_reply_status(&client->reply, "    Prints this help.");
}
