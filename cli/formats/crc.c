/* CRC-32 as in zip, eight bytes per step. The tables are built on the first call; the program is
 * single-threaded. */
#include "batch.h"

#include <string.h>

static uint32_t tables[8][256];

static void build_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        tables[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 8; t++)
            tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xFF];
}

uint32_t cli_crc32(uint32_t crc, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    if (tables[0][1] == 0)
        build_tables();
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        word ^= crc;
        crc = tables[7][word & 0xFF] ^ tables[6][word >> 8 & 0xFF] ^ tables[5][word >> 16 & 0xFF] ^
              tables[4][word >> 24 & 0xFF] ^ tables[3][word >> 32 & 0xFF] ^
              tables[2][word >> 40 & 0xFF] ^ tables[1][word >> 48 & 0xFF] ^ tables[0][word >> 56];
    }
    for (; bytes > 0; bytes--)
        crc = crc >> 8 ^ tables[0][(crc ^ *at++) & 0xFF];
    return ~crc;
}
