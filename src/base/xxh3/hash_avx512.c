#define LIGI_HASH_NAME ligi_hash_avx512
#define LIGI_HASH_KIND "avx512"
#include "base/xxh3/hash_body.h"
