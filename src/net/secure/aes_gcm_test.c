/* Every engine: published answers, OpenSSL's answers, and what must be refused. */
#include "net/secure/aes_gcm.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/test.h"

#define MAX 16384

static ligi_openssl openssl;
static ligi_gcm_set set;
static const ligi_gcm *engine; /* the one the tests are about */

typedef struct answer {
    const char *key, *nonce, *header, *text, *sealed; /* hexadecimal */
} answer;

/* Test cases 2, 3 and 4 of "The Galois/Counter Mode of Operation" (McGrew, Viega), which NIST took
 * into SP 800-38D's validation. The last byte of a text is our type. */
static const answer answers[] = {
    {"00000000000000000000000000000000", "000000000000000000000000", "",
     "00000000000000000000000000000000",
     "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf"},
    {"feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888", "",
     "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
     "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
     "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
     "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985"
     "4d5c2af327cd64a62cf35abd2ba6fab4"},
    {"feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
     "feedfacedeadbeeffeedfacedeadbeefabaddad2",
     "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
     "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
     "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
     "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
     "5bc94fbc3221a5db94fae95ae7121a47"},
};

static size_t read_hex(const char *text, uint8_t *bytes)
{
    size_t count = strlen(text) / 2;

    for (size_t i = 0; i < count; i++) {
        unsigned value;
        assert_int_equal(sscanf(text + 2 * i, "%2x", &value), 1);
        bytes[i] = (uint8_t)value;
    }
    return count;
}

static void test_published_answers(void **state)
{
    uint8_t key[16], nonce[12], header[32], text[64], sealed[80], made[80], back[64], type;

    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        void *seals = NULL, *opens = NULL;
        read_hex(answers[i].key, key);
        read_hex(answers[i].nonce, nonce);
        size_t bytes = read_hex(answers[i].text, text) - 1;
        ligi_gcm_record record = {.nonce = nonce,
                                  .header = header,
                                  .header_bytes = read_hex(answers[i].header, header),
                                  .in = text,
                                  .out = made,
                                  .bytes = bytes};
        assert_int_equal(read_hex(answers[i].sealed, sealed), bytes + 1 + LIGI_GCM_TAG);
        assert_ok(engine->ops->set_key(engine, key, 1, &seals));
        assert_ok(engine->ops->set_key(engine, key, 0, &opens));
        assert_true(engine->ops->seal(engine, seals, &record, text[bytes]));
        assert_memory_equal(made, sealed, bytes + 1 + LIGI_GCM_TAG);
        record.in = sealed;
        record.out = back;
        assert_true(engine->ops->open(engine, opens, &record, &type));
        assert_memory_equal(back, text, bytes);
        assert_int_equal(type, text[bytes]);
        engine->ops->release(engine, seals);
        engine->ops->release(engine, opens);
    }
}

/* Two ciphers of the engine and one of OpenSSL with the same key, and room for a record. */
typedef struct room {
    void *seals, *opens, *right;
    uint8_t key[LIGI_GCM_KEY], nonce[LIGI_GCM_NONCE], header[5];
    uint8_t data[MAX + 64], made[MAX + 64], wanted[MAX + 64], back[MAX + 64];
} room;

static room *room_open(unsigned seed)
{
    room *self = calloc(1, sizeof *self);

    assert_non_null(self);
    srand(seed);
    for (size_t i = 0; i < sizeof self->data; i++)
        self->data[i] = (uint8_t)rand();
    memcpy(self->key, self->data, sizeof self->key);
    assert_ok(engine->ops->set_key(engine, self->key, 1, &self->seals));
    assert_ok(engine->ops->set_key(engine, self->key, 0, &self->opens));
    assert_ok(set.openssl.ops->set_key(&set.openssl, self->key, 1, &self->right));
    return self;
}

static void room_close(room *self)
{
    engine->ops->release(engine, self->seals);
    engine->ops->release(engine, self->opens);
    set.openssl.ops->release(&set.openssl, self->right);
    free(self);
}

static ligi_gcm_record room_record(room *self, const uint8_t *in, uint8_t *out, size_t bytes)
{
    return (ligi_gcm_record){.nonce = self->nonce,
                             .header = self->header,
                             .header_bytes = sizeof self->header,
                             .in = in,
                             .out = out,
                             .bytes = bytes};
}

/* All lengths up to some blocks and then some of every kind, at odd addresses, with nothing written
 * beside; a key now and then. */
static void test_agrees_with_openssl(void **state)
{
    room *self = room_open(7);

    (void)state;
    for (size_t i = 0; i < 2000; i++) {
        size_t bytes = i < 800 ? i : (size_t)rand() % (MAX + 1), odd = i % 19;
        size_t whole = bytes + 1 + LIGI_GCM_TAG;
        uint8_t type = 0;
        for (size_t k = 0; k < sizeof self->nonce; k++)
            self->nonce[k] = (uint8_t)rand();
        memcpy(self->header, &i, sizeof self->header);
        memset(self->made, 0xa5, sizeof self->made);
        memset(self->back, 0xa5, sizeof self->back);
        ligi_gcm_record right = room_record(self, self->data + odd, self->wanted, bytes);
        ligi_gcm_record ours = room_record(self, self->data + odd, self->made + odd, bytes);
        ligi_gcm_record back = room_record(self, self->made + odd, self->back + 18 - odd, bytes);
        assert_true(set.openssl.ops->seal(&set.openssl, self->right, &right, (uint8_t)i));
        assert_true(engine->ops->seal(engine, self->seals, &ours, (uint8_t)i));
        assert_memory_equal(self->made + odd, self->wanted, whole);
        assert_int_equal(self->made[odd + whole], 0xa5);
        assert_true(engine->ops->open(engine, self->opens, &back, &type));
        assert_memory_equal(self->back + 18 - odd, self->data + odd, bytes);
        assert_int_equal(self->back[18 - odd + bytes], 0xa5);
        assert_int_equal(type, (uint8_t)i);
        if (i % 100 == 99) {
            self->key[i % 16] ^= (uint8_t)i;
            assert_ok(engine->ops->set_key(engine, self->key, 1, &self->seals));
            assert_ok(engine->ops->set_key(engine, self->key, 0, &self->opens));
            assert_ok(set.openssl.ops->set_key(&set.openssl, self->key, 1, &self->right));
        }
    }
    room_close(self);
}

static int opens(room *self, size_t bytes)
{
    ligi_gcm_record back = room_record(self, self->made, self->back, bytes);
    uint8_t type;

    return engine->ops->open(engine, self->opens, &back, &type);
}

static void test_refuses_what_was_changed(void **state)
{
    static const size_t sizes[] = {0, 1, 31, 300, MAX};
    room *self = room_open(8);

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t bytes = sizes[i], whole = bytes + 1 + LIGI_GCM_TAG;
        ligi_gcm_record ours = room_record(self, self->data, self->made, bytes);
        assert_true(engine->ops->seal(engine, self->seals, &ours, 23));
        for (size_t at = 0; at < whole; at += bytes > 1000 && at < bytes - 40 ? 997 : 1)
            for (int bit = 0; bit < 8; bit += 7) { /* data, type, tag */
                self->made[at] ^= (uint8_t)(1 << bit);
                assert_false(opens(self, bytes));
                self->made[at] ^= (uint8_t)(1 << bit);
            }
        if (bytes > 0)
            assert_false(opens(self, bytes - 1)); /* cut: the tag is looked for in the data */
        self->header[3] ^= 1;
        assert_false(opens(self, bytes));
        self->header[3] ^= 1;
        self->nonce[11] ^= 1;
        assert_false(opens(self, bytes));
        self->nonce[11] ^= 1;
        self->key[0] ^= 1;
        assert_ok(engine->ops->set_key(engine, self->key, 0, &self->opens));
        assert_false(opens(self, bytes));
        self->key[0] ^= 1;
        assert_ok(engine->ops->set_key(engine, self->key, 0, &self->opens));
        assert_true(opens(self, bytes));
    }
    room_close(self);
}

/* Engines with a fault each, made of the one that is tested. */
static int seals_wrong(const ligi_gcm *gcm, void *cipher, const ligi_gcm_record *record,
                       uint8_t type)
{
    int well = engine->ops->seal(gcm, cipher, record, type);

    if (record->bytes == 4099)
        record->out[4000] ^= 1;
    return well;
}

static int opens_all(const ligi_gcm *gcm, void *cipher, const ligi_gcm_record *record,
                     uint8_t *type)
{
    engine->ops->open(gcm, cipher, record, type);
    return 1;
}

static int opens_wrong(const ligi_gcm *gcm, void *cipher, const ligi_gcm_record *record,
                       uint8_t *type)
{
    int well = engine->ops->open(gcm, cipher, record, type);

    *type ^= record->bytes == 16;
    return well;
}

/* These two understand each other, and nobody else. */
static int seals_headless(const ligi_gcm *gcm, void *cipher, const ligi_gcm_record *record,
                          uint8_t type)
{
    ligi_gcm_record other = *record;

    other.header_bytes--;
    return engine->ops->seal(gcm, cipher, &other, type);
}

static int opens_headless(const ligi_gcm *gcm, void *cipher, const ligi_gcm_record *record,
                          uint8_t *type)
{
    ligi_gcm_record other = *record;

    other.header_bytes--;
    return engine->ops->open(gcm, cipher, &other, type);
}

static void test_check_finds_faults(void **state)
{
    ligi_gcm_ops ops[] = {*engine->ops, *engine->ops, *engine->ops, *engine->ops};
    ligi_gcm faulty = *engine;

    (void)state;
    assert_ok(ligi_gcm_check(engine));
    ops[0].seal = seals_wrong;
    ops[1].open = opens_all;
    ops[2].open = opens_wrong;
    ops[3].seal = seals_headless;
    ops[3].open = opens_headless;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        faulty.ops = &ops[i];
        assert_status(ligi_gcm_check(&faulty), LIG_E_UNSUPPORTED);
        assert_says("is not used");
    }
}

static void test_names(void **state)
{
    const ligi_gcm *found = NULL;

    (void)state;
    assert_status(ligi_gcm_choose(&set, "rot13", &found), LIG_E_INVALID);
    assert_says("ipsec-mb");
    assert_null(found);
    assert_ok(ligi_gcm_choose(&set, "openssl", &found));
    assert_ptr_equal(found, &set.openssl);
    assert_ok(ligi_gcm_choose(&set, engine->ops->name, &found));
    assert_ptr_equal(found, engine);
    assert_ok(ligi_gcm_choose(&set, "auto", &found));
    if (openssl.OPENSSL_version_minor() > 0)
        assert_ptr_equal(found, &set.openssl);
    else if (engine == &set.ipsec_mb)
        assert_ptr_equal(found, engine);
}

static unsigned minor; /* of the OpenSSL there seems to be */

static unsigned seeming_minor(void)
{
    return minor;
}

/* Whatever this machine has. */
static void test_auto_takes_the_faster(void **state)
{
    static const struct {
        const char *name;
        unsigned minor;
        int in_vain, ipsec_mb;
    } cases[] = {
        {"auto", 0, 0, 1}, /* OpenSSL 3.0 */
        {"auto", 1, 0, 0},     {"auto", 2, 0, 0},     {"auto", 5, 0, 0},
        {"auto", 0, 1, 0}, /* not looked for again */
        {"openssl", 0, 0, 0},  {"openssl", 5, 0, 0},  {"ipsec-mb", 0, 0, 1},
        {"ipsec-mb", 5, 0, 1}, {"ipsec-mb", 0, 1, 1},
    };
    const ligi_openssl seeming = {.OPENSSL_version_minor = seeming_minor};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ligi_gcm_set both;
        const ligi_gcm *found = NULL;
        ligi_gcm_set_init(&both, &seeming);
        both.ipsec_mb.ops = &ligi_gcm_ipsec_mb; /* it was loaded before */
        both.in_vain = cases[i].in_vain;
        minor = cases[i].minor;
        assert_ok(ligi_gcm_choose(&both, cases[i].name, &found));
        if (found != (cases[i].ipsec_mb ? &both.ipsec_mb : &both.openssl))
            fail_msg("crypto=%s, OpenSSL 3.%u: %s", cases[i].name, minor, found->ops->name);
    }
}

/* In a process that can open no more files, where no library can be loaded that is not there. */
static int choose_without_library(void)
{
    const struct rlimit none = {0, 0};
    const ligi_gcm *found = NULL;

    if (setrlimit(RLIMIT_NOFILE, &none) != 0)
        return 1;
    if (ligi_gcm_choose(&set, "ipsec-mb", &found) != LIG_E_UNSUPPORTED ||
        strstr(lig_error_text(), "ipsec-mb") == NULL)
        return 2;
    return ligi_gcm_choose(&set, "auto", &found) == LIG_OK && found == &set.openssl ? 0 : 3;
}

static void test_goes_on_without_the_library(void **state)
{
    int status;

    (void)state;
    pid_t child = fork();
    if (child == 0)
        _exit(choose_without_library());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest choice[] = {cmocka_unit_test(test_auto_takes_the_faster)};
    const struct CMUnitTest absent[] = {cmocka_unit_test(test_goes_on_without_the_library)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_answers),
        cmocka_unit_test(test_agrees_with_openssl),
        cmocka_unit_test(test_refuses_what_was_changed),
        cmocka_unit_test(test_check_finds_faults),
        cmocka_unit_test(test_names),
    };
    static const char *const names[] = {"openssl", "ipsec-mb"};
    ligi_ipsec_mb loaded;

    int failed = cmocka_run_group_tests(choice, NULL, NULL);
    if (ligi_openssl_load(&openssl) != LIG_OK) {
        printf("skipped: %s\n", lig_error_text());
        return failed;
    }
    ligi_gcm_set_init(&set, &openssl);
    failed += cmocka_run_group_tests(absent, NULL, NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (ligi_gcm_choose(&set, names[i], &engine) == LIG_OK) {
            failed += cmocka_run_group_tests_name(names[i], tests, NULL, NULL);
        } else {
            printf("left out: %s\n", lig_error_text());
            failed += ligi_ipsec_mb_load(&loaded) == LIG_OK; /* there, and not fit to be used */
        }
    }
    return failed;
}
