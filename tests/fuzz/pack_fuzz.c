/* A pack's header, trailer and footer: as they come, and hostile but for their hashes. */
#include "base/hash.h"
#include "store/format/packfile.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_footer(const uint8_t *footer, size_t size, uint64_t end)
{
    ligi_manifest manifest = {0};
    ligi_record place = {.pack = 5}, record = {0};
    if (ligi_manifest_get(footer, size, 5, &manifest) == LIG_OK &&
        ligi_pack_tensors_check(&manifest, 5, end) == LIG_OK) {
        uint8_t secret[LIG_SECRET_BYTES] = {1};
        ligi_manifest_fingerprints(&manifest, secret);
        if (ligi_record_of(&manifest, &place, &record) == LIG_OK)
            free(record.uses);
    }
    ligi_manifest_fini(&manifest);
}

static void read_header(const uint8_t *data, size_t size)
{
    uint8_t bytes[LIGI_PACK_HEADER_BYTES] = "LIGAPACK";
    ligi_pack_header header;
    size_t taken = size < sizeof bytes - 16 ? size : sizeof bytes - 16;
    memcpy(bytes + 8, data, taken);
    uint64_t hash = ligi_hash64_plain(bytes, sizeof bytes - 8);
    memcpy(bytes + sizeof bytes - 8, &hash, 8);
    (void)ligi_pack_header_parse(bytes, &header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t bytes[LIGI_PACK_TRAILER_BYTES] = "LIGATAIL";
    size_t taken = size < 48 ? size : 48;
    ligi_pack_trailer trailer;
    read_header(data, size);
    memcpy(bytes + 8, data, taken);
    uint64_t hash = ligi_hash64_plain(bytes, sizeof bytes - 8);
    memcpy(bytes + sizeof bytes - 8, &hash, 8);
    (void)ligi_pack_trailer_parse(bytes, size, &trailer);
    read_footer(data, size, UINT64_C(1) << 40);
    return 0;
}
