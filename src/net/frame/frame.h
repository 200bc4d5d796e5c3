/* The wire format: prefixes, hellos, goodbyes and cards. Pure. Everything decoded here comes from a
 * peer and is checked; LIG_E_CORRUPT with an error text if it is invalid. */
#ifndef LIGI_FRAME_H
#define LIGI_FRAME_H

#include "base/codec.h"
#include "net/transport.h"

#define LIGI_PREFIX_BYTES 16
#define LIGI_HELLO_HEAD_MAX                                                                        \
    4096 /* of a hello's head: what an unauthenticated peer may make us
                                  * read */
#define LIGI_BYE_TEXT_MAX 511
#define LIGI_BYE_HEAD_MAX (4 + LIGI_BYE_TEXT_MAX)

void ligi_frame_prefix_encode(const ligi_frame_prefix *prefix, uint8_t bytes[LIGI_PREFIX_BYTES]);
lig_status ligi_frame_prefix_decode(const uint8_t bytes[LIGI_PREFIX_BYTES],
                                    ligi_frame_prefix *prefix);

/* `hello->data` is borrowed from the input. LIG_E_UNSUPPORTED, with both versions in the text, if
 * the peer speaks another one. */
void ligi_hello_encode(const ligi_hello *hello, uint32_t service, ligi_writer *writer);
lig_status ligi_hello_decode(const void *data, size_t bytes, ligi_hello *hello, uint32_t *service);

/* The text may contain anything; unprintable bytes become '?'. */
size_t ligi_bye_encode(lig_status status, const char *text, uint8_t bytes[LIGI_BYE_HEAD_MAX]);
lig_status ligi_bye_decode(const void *data, size_t bytes, lig_status *status,
                           char text[LIGI_BYE_TEXT_MAX + 1]);

#define LIGI_CARD_ADDRESSES_MAX 8

typedef struct ligi_card {
    uint8_t boot_id[16], net_id[16];
    size_t count;
    const char *addresses[LIGI_CARD_ADDRESSES_MAX]; /* borrowed from the input */
} ligi_card;

/* LIG_E_LIMIT if it does not fit. *bytes: capacity in, bytes used out. */
lig_status ligi_card_encode(const ligi_card *card, void *data, size_t *bytes);
lig_status ligi_card_decode(const void *data, size_t bytes, ligi_card *card);

#endif
