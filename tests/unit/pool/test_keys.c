/* test_keys.c - derivations that differ, texts that notice a slip, and files
 * that only their owner may read. */
#include "fixture/scratch.h"

#include "base/log.h"
#include "base/system/private.h"
#include "pool/keys.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct reef_key pool = {
	{0,  1,	 2,  3,	 4,  5,	 6,  7,	 8,  9,	 10, 11, 12, 13, 14, 15,
	 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}};

static const struct reef_credential ada = {7, 1, {{'a', 'd', 'a'}}};
static const struct reef_node_key lender = {5, {{'l', 'e', 'n', 'd'}}};
static const struct reef_token cache = {9, 2, 3, {{'c', 'a', 'c', 'h', 'e'}}};

/* --- derivations --- */

static void to_hex(const struct reef_key *key, char text[65])
{
	for (size_t i = 0; i < sizeof(key->bytes); i++)
		snprintf(text + 2 * i, 3, "%02x", key->bytes[i]);
}

/* As Python's hmac has them: the formats must never change by accident, or
 * every credential that was handed out is void. */
static void keys_derivations_are_as_documented(void **state)
{
	struct reef_key key, node;
	char text[65];

	assert_int_equal(reef_key_derive_user(&pool, 7, 1, &key), 0);
	to_hex(&key, text);
	assert_string_equal(text, "adde72566501773b0ad63c73392e3ff2"
				  "2d6a3d22e1f5f418b19d82e8ab2f7f3b");
	assert_int_equal(reef_key_derive_node(&pool, 5, &node), 0);
	to_hex(&node, text);
	assert_string_equal(text, "1f9371d8805bc0c3a8565cebb370862e"
				  "bdfc63ad719e40de3d803d453634bb9a");
	assert_int_equal(reef_key_derive_broker(&node, &key), 0);
	to_hex(&key, text);
	assert_string_equal(text, "112b0974eb874cc0f63d3700a9771726"
				  "6c611f467c4ddd16ea06fa40f788ed12");
	assert_int_equal(reef_key_derive_link(&node, 0x20003, &key), 0);
	to_hex(&key, text);
	assert_string_equal(text, "10621191d394c001bd00a20d9ea62351"
				  "d447a0390845524b3b321753b067be52");
	assert_int_equal(reef_key_derive_pull(&node, 9, 2, &key), 0);
	to_hex(&key, text);
	assert_string_equal(text, "f6608265e536f19b4f3c7523a01522df"
				  "6169965df2c58912d8ae67434669a764");
	assert_int_equal(reef_key_derive_session(&pool, 0x20003, &key), 0);
	to_hex(&key, text);
	assert_string_equal(text, "cdde94ca590353893e46ec0bf6831f0b"
				  "bbd6b5efa49807d5456c6197c6797906");
	assert_int_equal(reef_key_derive_space(&pool, 9, 3, 2, &key), 0);
	to_hex(&key, text);
	assert_string_equal(text, "fcf45d8f0eedbb061fce18540fb38b7e"
				  "4c24e61c5e6560f20c6fcfa90c9c5b5f");
}

static void keys_every_input_counts(void **state)
{
	struct reef_key keys[32], other = pool;
	int count = 0;

	other.bytes[31] ^= 1;
	reef_key_derive_user(&pool, 7, 1, &keys[count++]);
	reef_key_derive_user(&pool, 1, 7, &keys[count++]);
	reef_key_derive_user(&pool, 7, 2, &keys[count++]);
	reef_key_derive_user(&pool, 8, 1, &keys[count++]);
	reef_key_derive_user(&pool, 0, 0, &keys[count++]);
	reef_key_derive_user(&other, 7, 1, &keys[count++]);
	reef_key_derive_node(&pool, 7, &keys[count++]);
	reef_key_derive_node(&pool, 8, &keys[count++]);
	reef_key_derive_node(&other, 7, &keys[count++]);
	reef_key_derive_broker(&pool, &keys[count++]);
	reef_key_derive_broker(&other, &keys[count++]);
	reef_key_derive_link(&pool, 7, &keys[count++]);
	reef_key_derive_link(&pool, 8, &keys[count++]);
	reef_key_derive_link(&other, 7, &keys[count++]);
	reef_key_derive_pull(&pool, 7, 1, &keys[count++]);
	reef_key_derive_pull(&pool, 1, 7, &keys[count++]);
	reef_key_derive_pull(&pool, 7, 2, &keys[count++]);
	reef_key_derive_pull(&other, 7, 1, &keys[count++]);
	reef_key_derive_session(&pool, 7, &keys[count++]);
	reef_key_derive_session(&pool, 8, &keys[count++]);
	reef_key_derive_space(&pool, 7, 1, 1, &keys[count++]);
	reef_key_derive_space(&pool, 7, 2, 1, &keys[count++]);
	reef_key_derive_space(&pool, 7, 1, 2, &keys[count++]);
	reef_key_derive_space(&pool, 1, 7, 1, &keys[count++]);
	reef_key_derive_space(&other, 7, 1, 1, &keys[count++]);
	keys[count++] = pool;
	for (int i = 0; i < count; i++)
		for (int k = 0; k < i; k++)
			assert_false(reef_key_equal(&keys[i], &keys[k]));
}

static void keys_rights_must_be_known(void **state)
{
	struct reef_key key = pool;

	assert_int_equal(reef_key_derive_space(&pool, 1, 0, 1, &key), -EINVAL);
	assert_int_equal(reef_key_derive_space(&pool, 1, 8, 1, &key), -EINVAL);
	assert_true(reef_key_equal(&key, &pool));
}

static void keys_created_ones_differ(void **state)
{
	struct reef_key a, b;

	assert_int_equal(reef_key_create(&a), 0);
	assert_int_equal(reef_key_create(&b), 0);
	assert_false(reef_key_equal(&a, &b));
	reef_key_wipe(&a);
	assert_true(reef_key_equal(&a, &(struct reef_key){{0}}));
}

static void keys_forged_ones_do_not_verify(void **state)
{
	struct reef_token token = {.space = 9, .era = 2, .rights = 1};

	assert_int_equal(reef_key_derive_space(&pool, 9, 1, 2, &token.key), 0);
	assert_int_equal(reef_token_verify(&token, &pool), 0);
	token.rights = 3;
	assert_int_equal(reef_token_verify(&token, &pool), -REEF_EAUTH);
	token.rights = 0;
	assert_int_equal(reef_token_verify(&token, &pool), -REEF_EAUTH);
	token.rights = 1;
	token.key.bytes[0] ^= 1;
	assert_int_equal(reef_token_verify(&token, &pool), -REEF_EAUTH);
}

/* A node that makes tokens of what it holds opens nothing. */
static void keys_token_of_a_nodes_key_does_not_verify(void **state)
{
	struct reef_token token = {.space = 9, .era = 2, .rights = 1};
	struct reef_key node;

	assert_int_equal(reef_key_derive_node(&pool, 9, &node), 0);
	assert_int_equal(reef_key_derive_space(&node, 9, 1, 2, &token.key), 0);
	assert_int_equal(reef_token_verify(&token, &pool), -REEF_EAUTH);
	token.key = node;
	assert_int_equal(reef_token_verify(&token, &pool), -REEF_EAUTH);
}

/* --- text --- */

static void keys_texts_are_as_documented(void **state)
{
	char text[REEF_KEY_TEXT_SIZE];

	reef_key_format(&pool, text);
	assert_string_equal(
		text,
		"reef-pool-"
		"aeaacaqdaqcqmbyibefawdanbyhraeiscmkbkfqxdamrugy4dupb7ilt4nvq");
}

static void keys_texts_come_back(void **state)
{
	struct reef_credential credential = {0};
	struct reef_node_key node = {0};
	struct reef_token token = {0};
	struct reef_key key = {{0}};
	char text[REEF_KEY_TEXT_SIZE];

	reef_key_format(&pool, text);
	assert_int_equal(reef_key_parse(text, &key), 0);
	assert_true(reef_key_equal(&key, &pool));
	reef_node_key_format(&lender, text);
	assert_memory_equal(text, "reef-node-", 10);
	assert_int_equal(reef_node_key_parse(text, &node), 0);
	assert_int_equal(node.node, 5);
	assert_true(reef_key_equal(&node.key, &lender.key));
	reef_credential_format(&ada, text);
	assert_int_equal(reef_credential_parse(text, &credential), 0);
	assert_int_equal(credential.user, 7);
	assert_int_equal(credential.era, 1);
	assert_true(reef_key_equal(&credential.key, &ada.key));
	reef_token_format(&cache, text);
	assert_int_equal(reef_token_parse(text, &token), 0);
	assert_int_equal(token.space, 9);
	assert_int_equal(token.era, 2);
	assert_int_equal(token.rights, 3);
	assert_true(reef_key_equal(&token.key, &cache.key));
}

static void refuse_token(const char *text)
{
	struct reef_token token = cache;

	assert_int_equal(reef_token_parse(text, &token), -REEF_ECORRUPT);
	assert_int_equal(token.space, cache.space);
	assert_int_equal(token.rights, cache.rights);
	assert_true(reef_key_equal(&token.key, &cache.key));
}

static void keys_each_mistyped_character_is_noticed(void **state)
{
	char good[REEF_KEY_TEXT_SIZE], text[REEF_KEY_TEXT_SIZE];

	reef_token_format(&cache, good);
	for (size_t i = 0; good[i]; i++)
		for (int c = 1; c < 256; c++) {
			if ((char)c == good[i])
				continue;
			memcpy(text, good, sizeof(text));
			text[i] = (char)c;
			refuse_token(text);
		}
}

static void keys_swapped_characters_are_noticed(void **state)
{
	char good[REEF_KEY_TEXT_SIZE], text[REEF_KEY_TEXT_SIZE];

	reef_token_format(&cache, good);
	for (size_t i = 0; good[i + 1]; i++) {
		if (good[i] == good[i + 1])
			continue;
		memcpy(text, good, sizeof(text));
		text[i] = good[i + 1];
		text[i + 1] = good[i];
		refuse_token(text);
	}
}

static void keys_missing_and_extra_characters_are_noticed(void **state)
{
	char good[REEF_KEY_TEXT_SIZE], text[REEF_KEY_TEXT_SIZE + 8];
	size_t length;

	reef_token_format(&cache, good);
	length = strlen(good);
	for (size_t i = 0; i < length; i++) {
		snprintf(text, sizeof(text), "%.*s", (int)i, good);
		refuse_token(text);
		snprintf(text, sizeof(text), "%.*s%s", (int)i, good,
			 good + i + 1);
		refuse_token(text);
	}
	snprintf(text, sizeof(text), "%sa", good);
	refuse_token(text);
	snprintf(text, sizeof(text), " %s", good);
	refuse_token(text);
}

static void keys_another_kind_is_refused(void **state)
{
	struct reef_credential credential;
	char text[REEF_KEY_TEXT_SIZE];
	struct reef_node_key node;
	struct reef_key key;

	reef_token_format(&cache, text);
	assert_int_equal(reef_key_parse(text, &key), -REEF_ECORRUPT);
	assert_int_equal(reef_node_key_parse(text, &node), -REEF_ECORRUPT);
	assert_int_equal(reef_credential_parse(text, &credential),
			 -REEF_ECORRUPT);
	reef_key_format(&pool, text);
	refuse_token(text);
	assert_int_equal(reef_node_key_parse(text, &node), -REEF_ECORRUPT);
	reef_node_key_format(&lender, text);
	assert_int_equal(reef_key_parse(text, &key), -REEF_ECORRUPT);
	refuse_token(text);
}

static void keys_newer_version_is_told(void **state)
{
	struct reef_key key;

	assert_int_equal(reef_key_parse("reef-pool-"
					"aiaacaqdaqcqmbyibefawdanbyhraeiscmkbkf"
					"qxdamrugy4dupb7uaovccq",
					&key),
			 -REEF_EVERSION);
}

/* --- files --- */

static int save_key(const char *path, const struct reef_key *key)
{
	char text[REEF_KEY_TEXT_SIZE];

	reef_key_format(key, text);
	return reef_key_text_save(path, text);
}

static void keys_files_come_back(void **state)
{
	const char *path = scratch_path("pool"), *user = scratch_path("user"),
		   *space = scratch_path("space"), *own = scratch_path("own");
	struct reef_credential credential;
	struct reef_node_key node;
	struct reef_token token;
	struct reef_key key;
	char text[REEF_KEY_TEXT_SIZE];
	struct stat status;
	ssize_t size;

	assert_int_equal(save_key(path, &pool), 0);
	reef_credential_format(&ada, text);
	assert_int_equal(reef_key_text_save(user, text), 0);
	assert_int_equal(text[0], 0); /* it was wiped */
	reef_node_key_format(&lender, text);
	assert_int_equal(reef_key_text_save(own, text), 0);
	reef_token_format(&cache, text);
	assert_int_equal(reef_key_text_save(space, text), 0);
	assert_int_equal(lstat(path, &status), 0);
	assert_int_equal(status.st_mode, S_IFREG | 0600);
	assert_int_equal(reef_key_load(path, &key), 0);
	assert_true(reef_key_equal(&key, &pool));
	assert_int_equal(reef_credential_load(user, &credential), 0);
	assert_int_equal(credential.user, 7);
	assert_int_equal(reef_node_key_load(own, &node), 0);
	assert_int_equal(node.node, 5);
	assert_true(reef_key_equal(&node.key, &lender.key));
	size = reef_private_read(space, text, sizeof(text) - 1);
	assert_true(size > 1 && text[size - 1] == '\n');
	text[size - 1] = '\0';
	assert_int_equal(reef_token_parse(text, &token), 0);
	assert_int_equal(token.space, 9);
	/* One for another. */
	assert_int_equal(reef_key_load(user, &key), -REEF_ECORRUPT);
	assert_int_equal(reef_node_key_load(path, &node), -REEF_ECORRUPT);
	assert_int_equal(reef_credential_load(path, &credential),
			 -REEF_ECORRUPT);
}

static void keys_saved_file_is_never_replaced(void **state)
{
	const char *path = scratch_path("pool");
	struct reef_key key, other;

	assert_int_equal(reef_key_create(&other), 0);
	assert_int_equal(save_key(path, &pool), 0);
	assert_int_equal(save_key(path, &other), -EEXIST);
	assert_int_equal(reef_key_load(path, &key), 0);
	assert_true(reef_key_equal(&key, &pool));
}

static void keys_file_open_to_others_is_refused(void **state)
{
	const char *path = scratch_path("pool"), *link = scratch_path("link");
	struct reef_key key = {{1}};

	assert_int_equal(save_key(path, &pool), 0);
	assert_int_equal(symlink("pool", link), 0);
	assert_int_equal(reef_key_load(link, &key), -EPERM);
	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(reef_key_load(path, &key), -EPERM);
	assert_int_equal(chmod(path, 0604), 0);
	assert_int_equal(reef_key_load(path, &key), -EPERM);
	assert_int_equal(reef_key_load(scratch, &key), -EPERM);
	assert_int_equal(reef_key_load(scratch_path("none"), &key), -ENOENT);
	assert_true(reef_key_equal(&key, &(struct reef_key){{1}}));
}

static void keys_truncated_file_is_refused(void **state)
{
	char text[REEF_KEY_TEXT_SIZE];
	struct reef_key key;

	reef_key_format(&pool, text);
	for (size_t size = 0; size < strlen(text); size++) {
		scratch_write("pool", text, size, 0600);
		assert_int_equal(reef_key_load(scratch_path("pool"), &key),
				 -REEF_ECORRUPT);
	}
	/* Without the end of its line it is whole. */
	scratch_write("pool", text, strlen(text), 0600);
	assert_int_equal(reef_key_load(scratch_path("pool"), &key), 0);
}

static void keys_file_with_more_in_it_is_refused(void **state)
{
	char text[REEF_KEY_TEXT_SIZE], more[1024];
	size_t size;
	struct reef_key key;

	reef_key_format(&pool, text);
	size = strlen(text);
	memset(more, '\n', sizeof(more));
	memcpy(more, text, size);
	scratch_write("pool", more, size + 2, 0600);
	assert_int_equal(reef_key_load(scratch_path("pool"), &key),
			 -REEF_ECORRUPT);
	scratch_write("pool", more, sizeof(more), 0600);
	assert_int_equal(reef_key_load(scratch_path("pool"), &key),
			 -REEF_ECORRUPT);
	/* Nothing hides behind a zero. */
	more[size] = '\0';
	scratch_write("pool", more, size + 2, 0600);
	assert_int_equal(reef_key_load(scratch_path("pool"), &key),
			 -REEF_ECORRUPT);
}

static void remember(void *context, enum reef_log_level level, const char *area,
		     const char *text)
{
	char *all = context;

	snprintf(all + strlen(all), 4096 - strlen(all), "%s\n", text);
}

static void keys_secrets_are_never_logged(void **state)
{
	char text[REEF_KEY_TEXT_SIZE], said[4096] = "";
	struct reef_key key;

	reef_key_format(&pool, text);
	text[40]++;
	scratch_write("pool", text, strlen(text), 0600);
	reef_log_set(remember, said, REEF_LOG_DEBUG);
	assert_int_equal(reef_key_load(scratch_path("pool"), &key),
			 -REEF_ECORRUPT);
	chmod(scratch_path("pool"), 0644);
	assert_int_equal(reef_key_load(scratch_path("pool"), &key), -EPERM);
	reef_log_set(NULL, NULL, REEF_LOG_DEBUG);
	assert_non_null(strstr(said, "damaged"));
	assert_non_null(strstr(said, "others"));
	text[20] = '\0';
	assert_null(strstr(said, text + 10));
}

#define FILE_TEST(name)                                                        \
	cmocka_unit_test_setup_teardown(name, scratch_make, scratch_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_derivations_are_as_documented),
		cmocka_unit_test(keys_every_input_counts),
		cmocka_unit_test(keys_rights_must_be_known),
		cmocka_unit_test(keys_created_ones_differ),
		cmocka_unit_test(keys_forged_ones_do_not_verify),
		cmocka_unit_test(keys_token_of_a_nodes_key_does_not_verify),
		cmocka_unit_test(keys_texts_are_as_documented),
		cmocka_unit_test(keys_texts_come_back),
		cmocka_unit_test(keys_each_mistyped_character_is_noticed),
		cmocka_unit_test(keys_swapped_characters_are_noticed),
		cmocka_unit_test(keys_missing_and_extra_characters_are_noticed),
		cmocka_unit_test(keys_another_kind_is_refused),
		cmocka_unit_test(keys_newer_version_is_told),
		FILE_TEST(keys_files_come_back),
		FILE_TEST(keys_saved_file_is_never_replaced),
		FILE_TEST(keys_file_open_to_others_is_refused),
		FILE_TEST(keys_truncated_file_is_refused),
		FILE_TEST(keys_file_with_more_in_it_is_refused),
		FILE_TEST(keys_secrets_are_never_logged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
