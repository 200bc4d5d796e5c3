#include "mesh/mesh_message.h"

#include "base/error.h"
#include "tensor/memory.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

/* Little-endian:
 *   0 u8 kind, 1 u8 version, 2 u16 push count, 4 u16 pull count, 6 u16 status, 8 u64 serial,
 *   16 u64 stamps[4], 48 pieces or text
 * A piece: u64 key, u16 dtype, u8 ndim, u8 kind of its place, u32 arena, i64 shape[ndim], and in an
 * arena u64 offset.
 * An offer: 48 u32 arena, u32 pid, u64 address, u64 bytes, device[16], handle[64]. */
enum { AT_PUSH = 2, AT_PULL = 4, AT_STATUS = 6, AT_SERIAL = 8, AT_STAMPS = 16, PIECE_BYTES = 16 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "heads are copied as they are in memory");

static uint16_t load16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t load64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void store16(uint8_t *at, size_t value)
{
    uint16_t narrow = (uint16_t)value;
    memcpy(at, &narrow, sizeof narrow);
}

static void store64(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}

lig_status ligi_pieces_reserve(ligi_pieces *pieces, size_t count)
{
    if (count <= pieces->room)
        return LIG_OK;
    size_t room = pieces->room ? pieces->room : 4;
    while (room < count)
        room *= 2;
    ligi_pieces grown = {.room = room};
    LIG_TRY(ligi_calloc(&grown.tensors, room, sizeof *grown.tensors, "the tensors of a request"));
    lig_status status = ligi_calloc(&grown.keys, room, sizeof *grown.keys, "keys of a request");
    if (status == LIG_OK)
        status =
            ligi_calloc(&grown.places, room, sizeof *grown.places, "the locations of a request");
    if (status == LIG_OK)
        status = ligi_calloc(&grown.shapes, room * LIG_MESH_NDIM_MAX, sizeof *grown.shapes,
                             "the shapes of a request");
    if (status != LIG_OK) {
        ligi_pieces_fini(&grown);
        return status;
    }
    ligi_pieces_fini(pieces);
    *pieces = grown;
    return LIG_OK;
}

void ligi_pieces_fini(ligi_pieces *pieces)
{
    free(pieces->tensors);
    free(pieces->places);
    free(pieces->keys);
    free(pieces->shapes);
    *pieces = (ligi_pieces){0};
}

static lig_status corrupt(const char *what)
{
    return lig_fail(LIG_E_CORRUPT, "malformed mesh message: %s", what);
}

/* One piece at *at, which is advanced. */
static lig_status get_piece(const uint8_t **at, const uint8_t *end, ligi_pieces *pieces,
                            size_t index)
{
    const uint8_t *piece = *at;
    if (end - piece < PIECE_BYTES)
        return corrupt("truncated tensor");
    uint32_t dtype = load16(piece + 8), ndim = piece[10];
    ligi_place place = {piece[11], (uint32_t)(load64(piece + 8) >> 32), 0};
    int lent = place.kind == LIGI_PLACE_ARENA;
    if (ndim > LIG_MESH_NDIM_MAX || place.kind > LIGI_PLACE_ARENA || (!lent && place.arena != 0) ||
        place.arena >= LIGI_MESSAGE_ARENAS)
        return corrupt("a tensor has too many dimensions, or an unknown place");
    size_t extra = 8 * (size_t)ndim + (lent ? 8 : 0);
    if ((size_t)(end - piece) - PIECE_BYTES < extra)
        return corrupt("truncated shape");
    int64_t *shape = pieces->shapes + index * LIG_MESH_NDIM_MAX;
    memcpy(shape, piece + PIECE_BYTES, 8 * (size_t)ndim);
    if (lent)
        place.offset = load64(piece + PIECE_BYTES + 8 * (size_t)ndim);
    pieces->places[index] = place;
    lig_tensor *tensor = &pieces->tensors[index];
    *tensor = (lig_tensor){.name = "", .shape = shape, .ndim = ndim, .dtype = (uint16_t)dtype};
    if (lig_dtype_bytes(dtype) == 0 ||
        ligi_shape_bytes(shape, ndim, dtype, &tensor->bytes) != LIG_OK)
        return corrupt("a tensor has an invalid dtype or shape");
    pieces->keys[index] = load64(piece);
    *at = piece + PIECE_BYTES + extra;
    return LIG_OK;
}

static lig_status get_pieces(const uint8_t *at, const uint8_t *end, ligi_pieces *pieces,
                             ligi_message *message)
{
    size_t count = (size_t)message->push_count + message->pull_count;
    if (message->push_count > LIG_MESH_TENSORS_MAX || message->pull_count > LIG_MESH_TENSORS_MAX)
        return corrupt("too many tensors");
    if ((size_t)(end - at) < count * PIECE_BYTES)
        return corrupt("truncated list of tensors");
    LIG_TRY(ligi_pieces_reserve(pieces, count));
    for (size_t i = 0; i < count; i++) {
        LIG_TRY(get_piece(&at, end, pieces, i));
        uint64_t *sum = i < message->push_count ? &message->push_bytes : &message->pull_bytes;
        if (__builtin_add_overflow(*sum, pieces->tensors[i].bytes, sum) || *sum > INT64_MAX)
            return corrupt("tensors too large");
        if (i < message->push_count && pieces->places[i].kind != LIGI_PLACE_ARENA)
            message->payload_bytes += pieces->tensors[i].bytes;
    }
    return at == end ? LIG_OK : corrupt("trailing bytes after the tensors");
}

static lig_status get_sentence(const uint8_t *at, const uint8_t *end, ligi_message *message)
{
    message->sentence = (const char *)at;
    message->sentence_bytes = (uint32_t)(end - at);
    int known = message->status > LIG_OK && message->status <= LIG_E_INTERNAL;
    if (end - at > LIGI_MESSAGE_REFUSAL_BYTES - LIGI_MESSAGE_SMALL_BYTES || !known)
        return corrupt("refusal with an unknown status");
    return memchr(at, 0, (size_t)(end - at)) ? corrupt("NUL in an error text") : LIG_OK;
}

lig_status ligi_message_decode(const void *head, size_t bytes, ligi_pieces *pieces,
                               ligi_message *message)
{
    const uint8_t *at = head, *end = at + bytes;
    if (bytes < LIGI_MESSAGE_SMALL_BYTES || bytes > LIGI_MESSAGE_BYTES_MAX)
        return corrupt("its length");
    if (at[1] != LIGI_MESSAGE_VERSION)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "protocol version mismatch in the mesh: the peer has version %u, this "
                        "process version %d",
                        at[1], LIGI_MESSAGE_VERSION);
    *message = (ligi_message){.kind = (ligi_message_kind)at[0],
                              .serial = load64(at + AT_SERIAL),
                              .push_count = load16(at + AT_PUSH),
                              .pull_count = load16(at + AT_PULL),
                              .status = (lig_status)load16(at + AT_STATUS)};
    memcpy(message->stamps, at + AT_STAMPS, sizeof message->stamps);
    at += LIGI_MESSAGE_SMALL_BYTES;
    switch (at[-LIGI_MESSAGE_SMALL_BYTES]) {
    case LIGI_MESSAGE_REQUEST:
        return pieces ? get_pieces(at, end, pieces, message) : corrupt("unexpected request");
    case LIGI_MESSAGE_REFUSAL: return get_sentence(at, end, message);
    case LIGI_MESSAGE_OPENED:
    case LIGI_MESSAGE_REPLY:
    case LIGI_MESSAGE_PING:
    case LIGI_MESSAGE_PONG: return at == end ? LIG_OK : corrupt("too long for its kind");
    default: return corrupt("its kind");
    }
}

size_t ligi_message_piece_bytes(const lig_tensor *tensor)
{
    return PIECE_BYTES + 8 * (size_t)tensor->ndim + (tensor->memory == LIG_MEMORY_HOST ? 0 : 8);
}

static uint8_t *put_piece(uint8_t *at, const lig_tensor *tensor, uint64_t key,
                          const ligi_place *place)
{
    store64(at, key);
    store64(at + 8, tensor->dtype | (uint64_t)tensor->ndim << 16 | (uint64_t)place->kind << 24 |
                        (uint64_t)place->arena << 32);
    at += PIECE_BYTES;
    if (tensor->ndim)
        memcpy(at, tensor->shape, 8 * (size_t)tensor->ndim);
    at += 8 * (size_t)tensor->ndim;
    if (place->kind != LIGI_PLACE_ARENA)
        return at;
    store64(at, place->offset);
    return at + 8;
}

static void put_start(uint8_t *head, ligi_message_kind kind, uint64_t serial)
{
    memset(head, 0, LIGI_MESSAGE_SMALL_BYTES);
    head[0] = (uint8_t)kind;
    head[1] = LIGI_MESSAGE_VERSION;
    store64(head + AT_SERIAL, serial);
}

size_t ligi_message_request(const ligi_request_parts *parts, void *head)
{
    uint8_t *bytes = head, *at = bytes + LIGI_MESSAGE_SMALL_BYTES;
    put_start(bytes, LIGI_MESSAGE_REQUEST, parts->serial);
    store16(bytes + AT_PUSH, parts->push_count);
    store16(bytes + AT_PULL, parts->pull_count);
    static const ligi_place host = {0};
    for (uint32_t i = 0; i < parts->push_count; i++)
        at = put_piece(at, &parts->push[i], parts->push_keys[i],
                       parts->push_places ? &parts->push_places[i] : &host);
    for (uint32_t i = 0; i < parts->pull_count; i++)
        at = put_piece(at, &parts->pull[i], parts->pull_keys[i],
                       parts->pull_places ? &parts->pull_places[i] : &host);
    return (size_t)(at - bytes);
}

size_t ligi_message_small(ligi_message_kind kind, uint64_t serial, const uint64_t *stamps,
                          void *head)
{
    put_start(head, kind, serial);
    if (stamps)
        memcpy((uint8_t *)head + AT_STAMPS, stamps, LIGI_MESSAGE_STAMPS * sizeof *stamps);
    return LIGI_MESSAGE_SMALL_BYTES;
}

size_t ligi_message_opened(uint32_t arena, lig_status status, void *head)
{
    put_start(head, LIGI_MESSAGE_OPENED, arena);
    store16((uint8_t *)head + AT_STATUS, (size_t)status);
    return LIGI_MESSAGE_SMALL_BYTES;
}

_Static_assert(sizeof(ligi_offer) == LIGI_MESSAGE_OFFER_BYTES - LIGI_MESSAGE_SMALL_BYTES,
               "an offer is sent as it is in memory");

size_t ligi_message_offer(const ligi_offer *offer, void *head)
{
    put_start(head, LIGI_MESSAGE_OFFER, 0);
    memcpy((uint8_t *)head + LIGI_MESSAGE_SMALL_BYTES, offer, sizeof *offer);
    return LIGI_MESSAGE_OFFER_BYTES;
}

lig_status ligi_message_decode_offer(const void *head, size_t bytes, ligi_offer *offer)
{
    const uint8_t *at = head;
    if (bytes != LIGI_MESSAGE_OFFER_BYTES || at[0] != LIGI_MESSAGE_OFFER ||
        at[1] != LIGI_MESSAGE_VERSION)
        return corrupt("an offer of memory");
    memcpy(offer, at + LIGI_MESSAGE_SMALL_BYTES, sizeof *offer);
    if (offer->arena >= LIGI_MESSAGE_ARENAS || offer->bytes == 0 || offer->bytes > INT64_MAX)
        return corrupt("an offer of memory with an invalid number or size");
    return LIG_OK;
}

size_t ligi_message_refusal(uint64_t serial, lig_status status, const char *sentence, void *head)
{
    size_t bytes = strlen(sentence);
    size_t most = LIGI_MESSAGE_REFUSAL_BYTES - LIGI_MESSAGE_SMALL_BYTES;
    if (bytes > most)
        bytes = most;
    put_start(head, LIGI_MESSAGE_REFUSAL, serial);
    store16((uint8_t *)head + AT_STATUS, (size_t)status);
    memcpy((uint8_t *)head + LIGI_MESSAGE_SMALL_BYTES, sentence, bytes);
    return LIGI_MESSAGE_SMALL_BYTES + bytes;
}
