/* libcurl alone against an S3 server: what a store on S3 is compared with.
 *
 *     s3_bare ENDPOINT BUCKET PREFIX COUNT BYTES SMALL
 *
 * writes COUNT objects of BYTES bytes, 16 requests in flight, reads them again and removes them, then
 * writes SMALL objects of 4 KiB one after the other. Keys are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the
 * region in AWS_REGION. Prints one line of JSON. */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FLYING 16
#define SMALL_BYTES 4096

typedef enum request { REQUEST_GET, REQUEST_PUT, REQUEST_DELETE } request;

typedef struct slot {
    CURL *easy;
    char *memory;
    size_t at, bytes, number;
} slot;

typedef struct bare {
    const char *endpoint, *bucket, *prefix;
    char keys[256], provider[128];
    struct curl_slist *headers;
    CURLM *multi;
    slot slots[FLYING];
    size_t count, bytes;
} bare;

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static size_t send_bytes(char *out, size_t size, size_t count, void *context)
{
    slot *one = context;
    size_t bytes = size * count < one->bytes - one->at ? size * count : one->bytes - one->at;

    memcpy(out, one->memory + one->at, bytes);
    one->at += bytes;
    return bytes;
}

static size_t receive_bytes(char *data, size_t size, size_t count, void *context)
{
    slot *one = context;

    if (size * count > one->bytes - one->at)
        return 0;
    memcpy(one->memory + one->at, data, size * count);
    one->at += size * count;
    return size * count;
}

static size_t ignore(char *data, size_t size, size_t count, void *context)
{
    (void)data, (void)context;
    return size * count;
}

static void prepare(const bare *self, slot *one, request kind)
{
    char url[1024];

    curl_easy_reset(one->easy);
    snprintf(url, sizeof url, "%s/%s/%s/%zu", self->endpoint, self->bucket, self->prefix,
             one->number);
    one->at = 0;
    curl_easy_setopt(one->easy, CURLOPT_URL, url);
    curl_easy_setopt(one->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(one->easy, CURLOPT_AWS_SIGV4, self->provider);
    curl_easy_setopt(one->easy, CURLOPT_USERPWD, self->keys);
    curl_easy_setopt(one->easy, CURLOPT_HTTPHEADER, self->headers);
    curl_easy_setopt(one->easy, CURLOPT_BUFFERSIZE, 512L << 10);
    curl_easy_setopt(one->easy, CURLOPT_UPLOAD_BUFFERSIZE, 1024L << 10);
    curl_easy_setopt(one->easy, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(one->easy, CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);
    curl_easy_setopt(one->easy, CURLOPT_PRIVATE, one);
    curl_easy_setopt(one->easy, CURLOPT_WRITEFUNCTION,
                     kind == REQUEST_GET ? receive_bytes : ignore);
    curl_easy_setopt(one->easy, CURLOPT_WRITEDATA, one);
    if (kind == REQUEST_DELETE)
        curl_easy_setopt(one->easy, CURLOPT_CUSTOMREQUEST, "DELETE");
    if (kind == REQUEST_PUT) {
        curl_easy_setopt(one->easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(one->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)one->bytes);
        curl_easy_setopt(one->easy, CURLOPT_READFUNCTION, send_bytes);
        curl_easy_setopt(one->easy, CURLOPT_READDATA, one);
    }
}

/* All objects, FLYING at once; exits on a failure. */
static double pass(bare *self, request kind)
{
    size_t next = 0;
    double start = seconds();
    int running, left;
    CURLMsg *message;

    for (; next < FLYING && next < self->count; next++) {
        self->slots[next].number = next;
        prepare(self, &self->slots[next], kind);
        curl_multi_add_handle(self->multi, self->slots[next].easy);
    }
    for (size_t done = 0; done < self->count;) {
        curl_multi_perform(self->multi, &running);
        while ((message = curl_multi_info_read(self->multi, &left)) != NULL) {
            slot *one;
            if (message->data.result != CURLE_OK) {
                fprintf(stderr, "s3_bare: %s\n", curl_easy_strerror(message->data.result));
                exit(1);
            }
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &one);
            curl_multi_remove_handle(self->multi, one->easy);
            done++;
            if (next < self->count) {
                one->number = next++;
                prepare(self, one, kind);
                curl_multi_add_handle(self->multi, one->easy);
            }
        }
        if (done < self->count)
            curl_multi_poll(self->multi, NULL, 0, 1000, NULL);
    }
    return seconds() - start;
}

static double put_small(bare *self, size_t number)
{
    slot *one = &self->slots[0];
    double start = seconds();

    one->bytes = SMALL_BYTES;
    one->number = 1000000 + number;
    prepare(self, one, REQUEST_PUT);
    if (curl_easy_perform(one->easy) != CURLE_OK) {
        fprintf(stderr, "s3_bare: a small PUT failed\n");
        exit(1);
    }
    return seconds() - start;
}

static int begin(bare *self)
{
    const char *key = getenv("AWS_ACCESS_KEY_ID"), *secret = getenv("AWS_SECRET_ACCESS_KEY");
    const char *region = getenv("AWS_REGION");

    if (key == NULL || secret == NULL || region == NULL)
        return 0;
    snprintf(self->keys, sizeof self->keys, "%s:%s", key, secret);
    snprintf(self->provider, sizeof self->provider, "aws:amz:%s:s3", region);
    self->headers = curl_slist_append(NULL, "x-amz-content-sha256: UNSIGNED-PAYLOAD");
    self->multi = curl_multi_init();
    for (size_t i = 0; i < FLYING; i++) {
        slot *one = &self->slots[i];
        one->easy = curl_easy_init();
        one->bytes = self->bytes;
        one->memory = malloc(self->bytes > SMALL_BYTES ? self->bytes : SMALL_BYTES);
        if (one->easy == NULL || one->memory == NULL)
            return 0;
        for (size_t at = 0; at < self->bytes; at++)
            one->memory[at] = (char)(at * 2654435761u >> 13);
    }
    return 1;
}

int main(int count, char **words)
{
    bare self = {0};

    if (count != 7)
        return 2;
    self.endpoint = words[1];
    self.bucket = words[2];
    self.prefix = words[3];
    self.count = strtoull(words[4], NULL, 10);
    self.bytes = strtoull(words[5], NULL, 10);
    size_t small = strtoull(words[6], NULL, 10);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (!begin(&self)) {
        fprintf(stderr, "s3_bare: no keys in the environment, or no memory\n");
        return 1;
    }
    double write_s = pass(&self, REQUEST_PUT), read_s = pass(&self, REQUEST_GET);
    pass(&self, REQUEST_DELETE);
    printf("{\"write_s\": %.6f, \"read_s\": %.6f, \"put_s\": [", write_s, read_s);
    for (size_t i = 0; i < small; i++)
        printf("%s%.6f", i == 0 ? "" : ", ", put_small(&self, i));
    puts("]}");
    return 0;
}
