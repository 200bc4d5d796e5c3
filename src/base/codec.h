/* Bytes in files and frames: little-endian, bounded on both sides. Every parser of the library
 * reads through this. */
#ifndef LIGI_CODEC_H
#define LIGI_CODEC_H

#include <ligament/base.h>

/* Grows as it is written. Zero-initialised is valid; the first failure sticks in `status`, so
 * callers check once at the end. */
typedef struct ligi_writer {
    uint8_t *data;
    size_t bytes, capacity;
    lig_status status;
} ligi_writer;

void ligi_put_u8(ligi_writer *writer, uint8_t value);
void ligi_put_u32(ligi_writer *writer, uint32_t value);
void ligi_put_u64(ligi_writer *writer, uint64_t value);
void ligi_put_f64(ligi_writer *writer, double value);
/* 1 to 10 bytes, 7 bits each, lowest first. */
void ligi_put_varint(ligi_writer *writer, uint64_t value);
void ligi_put_bytes(ligi_writer *writer, const void *data, size_t bytes);
/* varint length, bytes, and a NUL so that a reader can borrow the string. */
void ligi_put_text(ligi_writer *writer, const char *text);
void ligi_put_zeros(ligi_writer *writer, size_t bytes);
void ligi_writer_fini(ligi_writer *writer);

/* Never reads past its end: the first read that does sets `failed`, and it and all later ones give
 * zeros. */
typedef struct ligi_reader {
    const uint8_t *data;
    size_t bytes, at;
    int failed;
} ligi_reader;

uint8_t ligi_get_u8(ligi_reader *reader);
uint32_t ligi_get_u32(ligi_reader *reader);
uint64_t ligi_get_u64(ligi_reader *reader);
double ligi_get_f64(ligi_reader *reader);
uint64_t ligi_get_varint(ligi_reader *reader);
/* Borrows `bytes` bytes; NULL if fewer are left. */
const void *ligi_get_bytes(ligi_reader *reader, size_t bytes);
/* Borrows a string written by ligi_put_text: checks the NUL at its end, and that there is none
 * inside; "" on failure. */
const char *ligi_get_text(ligi_reader *reader, size_t max_bytes);
/* A count of items of at least `least` bytes each: fails if they cannot fit in what is left, so
 * that memory is never allocated for a count from a hostile file. */
size_t ligi_get_count(ligi_reader *reader, size_t least);

/* A number of at most eight bytes at a known place. */
static inline void ligi_store_le(void *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)out)[i] = (uint8_t)(value >> (8 * i));
}

static inline uint64_t ligi_load_le(const void *in, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)((const uint8_t *)in)[i] << (8 * i);
    return value;
}

/* Big-endian, for keys that sort by number. */
void ligi_put_be64(void *out, uint64_t value);
uint64_t ligi_get_be64(const void *in);

/* 1 if the text is valid UTF-8 (no surrogates, no overlong forms). */
int ligi_utf8_valid(const char *text, size_t bytes);

#endif
