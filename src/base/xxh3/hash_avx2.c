#define LIGI_HASH_NAME ligi_hash_avx2
#define LIGI_HASH_KIND "avx2"
#include "base/xxh3/hash_body.h"
