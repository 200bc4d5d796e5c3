#include "backend/rados/format/rados_class_lock.h"

#include <assert.h>
#include <string.h>

enum { HEADER_BYTES = 6 }; /* version, oldest compatible version, length of the rest */

static void put_bytes(ligi_class_argument *to, const void *bytes, size_t size)
{
    assert(to->size + size <= sizeof to->bytes);
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

static void put_byte(ligi_class_argument *to, uint8_t value)
{
    put_bytes(to, &value, 1);
}

static void put_number(ligi_class_argument *to, uint64_t value)
{
    for (int i = 0; i < 4; i++)
        put_byte(to, (uint8_t)(value >> (8 * i)));
}

static void put_text(ligi_class_argument *to, const char *text)
{
    put_number(to, strlen(text));
    put_bytes(to, text, strlen(text));
}

static void begin(ligi_class_argument *to)
{
    to->size = 0;
    put_byte(to, 1);
    put_byte(to, 1);
    put_number(to, 0);
}

static void end(ligi_class_argument *to)
{
    size_t size = to->size;

    to->size = HEADER_BYTES - 4;
    put_number(to, size - HEADER_BYTES);
    to->size = size;
}

ligi_class_argument ligi_class_lock_encode(const ligi_class_lock *lock)
{
    ligi_class_argument to;

    begin(&to);
    put_text(&to, lock->name);
    put_byte(&to, (uint8_t)lock->type);
    put_text(&to, lock->cookie);
    put_text(&to, ""); /* tag: holders of one lock have the same */
    put_text(&to, ""); /* description */
    put_number(&to, (uint64_t)lock->duration_ns / 1000000000u);
    put_number(&to, (uint64_t)lock->duration_ns % 1000000000u);
    put_byte(&to, lock->flags);
    end(&to);
    return to;
}

ligi_class_argument ligi_class_unlock_encode(const char *name, const char *cookie)
{
    ligi_class_argument to;

    begin(&to);
    put_text(&to, name);
    put_text(&to, cookie);
    end(&to);
    return to;
}

ligi_class_argument ligi_class_info_encode(const char *name)
{
    ligi_class_argument to;

    begin(&to);
    put_text(&to, name);
    end(&to);
    return to;
}

int ligi_class_info_decode(const void *bytes, size_t size, uint32_t *holders)
{
    const uint8_t *from = bytes;

    if (size < HEADER_BYTES + 4 || from[1] > 1)
        return 0;
    *holders = 0;
    for (int i = 0; i < 4; i++)
        *holders |= (uint32_t)from[HEADER_BYTES + i] << (8 * i);
    return 1;
}
