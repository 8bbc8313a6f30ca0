/* What the oracle calls in libdarknet: every struct stays on this side. */
#define _GNU_SOURCE /* for RTLD_NEXT */
#include "darknet.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SSE__
/* Debian builds the library with -Ofast, so loading it makes the thread flush denormal numbers to zero: take that back. */
#include <xmmintrin.h>
__attribute__((constructor)) static void keep_denormals(void) { _mm_setcsr(_mm_getcsr() & ~0x8040u); }
#endif

static float *give(image im, int *w, int *h, int *c) { *w = im.w; *h = im.h; *c = im.c; return im.data; }
static image take(float *data, int w, int h, int c) { image im; im.w = w; im.h = h; im.c = c; im.data = data; return im; }

/* What make_*_layer of the CPU build forgets, or asks too little of: nothing here changes what is computed.
   [batchnorm] has no x to copy its input to (batchnorm_layer.c); [deconvolutional] has 0 groups, by which loading its
   weights divides (parser.c, load_convolutional_weights); [local] counts its workspace in floats where bytes are meant
   (local_layer.c). */
static size_t workspace_size(network *net, int mended) {
    size_t most = 0;
    int i;
    for (i = 0; i < net->n; ++i) {
        size_t own = net->layers[i].workspace_size;
        if (mended && net->layers[i].type == LOCAL) own *= sizeof(float);
        if (own > most) most = own;
    }
    return most;
}
static void mend(network *net) {
#ifndef GPU
    int i;
    for (i = 0; i < net->n; ++i) {
        layer *l = net->layers + i;
        if (l->type == BATCHNORM && !l->x) l->x = calloc((size_t)l->batch * l->outputs, sizeof(float));
        if (l->type == DECONVOLUTIONAL && !l->groups) l->groups = 1;
    }
    if (workspace_size(net, 1) > workspace_size(net, 0)) {
        free(net->workspace);
        net->workspace = calloc(1, workspace_size(net, 1));
    }
#endif
}

/* The library draws every weight before it reads a file's, which takes most of the time of loading. It calls these two in place
   of its own, since this library comes before it: nothing is drawn for what a file is read into. */
static int draws = 1;
float rand_normal(void) {
    static float (*own)(void);
    if (!draws) return 0;
    if (!own) own = (float (*)(void))dlsym(RTLD_NEXT, "rand_normal");
    return own();
}
float rand_uniform(float least, float most) {
    static float (*own)(float, float);
    if (!draws) return least;
    if (!own) own = (float (*)(float, float))dlsym(RTLD_NEXT, "rand_uniform");
    return own(least, most);
}

network *shim_load(char *cfg, char *weights, int batch) {
    network *net;
    draws = !weights;
    net = load_network(cfg, 0, 0);
    draws = 1;
    if (batch > net->batch) { /* the buffers are made for the cfg's batch */
        free_network(net);
        return 0;
    }
    mend(net);
    if (weights) load_weights(net, weights);
    set_batch_network(net, batch);
    return net;
}
void shim_free(network *net) {
#ifdef GPU
    cuda_free(net->workspace); /* free_network forgets it */
#else
    free(net->workspace);
#endif
    free_network(net);
}
void shim_input(network *net, int *chw) { /* a net with only inputs= has no map */
    int map = net->c * net->h * net->w;
    chw[0] = map ? net->c : net->inputs; chw[1] = map ? net->h : 1; chw[2] = map ? net->w : 1;
}
int shim_layers(network *net) { return net->n; }
int shim_outputs(network *net) { return get_network_output_layer(net).outputs; }
void shim_layer(network *net, int i, int *facts) {
    layer *l = net->layers + i;
    facts[0] = l->out_c; facts[1] = l->out_h; facts[2] = l->out_w; facts[3] = l->outputs; facts[4] = l->type;
}
float *shim_layer_output(network *net, int i) {
    layer *l = net->layers + i;
#ifdef GPU
    cuda_pull_array(l->output_gpu, l->output, (size_t)l->outputs * l->batch);
#endif
    return l->output;
}
float *shim_predict(network *net, float *input) {
#ifndef GPU
    /* gemm_cpu multiplies what is there by 0 (gemm.c): a NaN that the image before left would stay */
    if (net->workspace) memset(net->workspace, 0, workspace_size(net, 1));
#endif
    return network_predict(net, input);
}

float *shim_load_image(char *path, int *w, int *h, int *c) { return give(load_image_color(path, 0, 0), w, h, c); }
float *shim_letterbox(float *data, int w, int h, int c, int to_w, int to_h) {
    return letterbox_image(take(data, w, h, c), to_w, to_h).data;
}
void shim_free_floats(float *data) { free(data); }

/* Decode and suppress. Rows: class, score, left, top, right, bottom in pixels. */
static int find(network *net, int w, int h, float thresh, float hier, float nms, float *rows, int most) {
    int boxes = 0, found = 0, i, k;
    detection *dets = get_network_boxes(net, w, h, thresh, hier, 0, 1, &boxes);
    int classes = get_network_output_layer(net).classes; /* region layers leave dets[].classes at 0 */
    if (nms > 0) do_nms_sort(dets, boxes, classes, nms);
    for (i = 0; i < boxes; ++i) {
        box b = dets[i].bbox;
        for (k = 0; k < classes; ++k) {
            if (dets[i].prob[k] <= thresh) continue;
            if (found < most) {
                float *row = rows + 6 * found;
                row[0] = k; row[1] = dets[i].prob[k];
                row[2] = (b.x - b.w / 2) * w; row[3] = (b.y - b.h / 2) * h;
                row[4] = (b.x + b.w / 2) * w; row[5] = (b.y + b.h / 2) * h;
            }
            ++found;
        }
    }
    free_detections(dets, boxes);
    return found;
}

/* What `darknet detect` does: letterbox, run, decode, suppress. */
int shim_detect(network *net, float *data, int w, int h, int c, float thresh, float hier, float nms, float *rows, int most) {
    image sized = letterbox_image(take(data, w, h, c), net->w, net->h);
    shim_predict(net, sized.data);
    free_image(sized);
    return find(net, w, h, thresh, hier, nms, rows, most);
}

/* The same from the bytes of a decoded pixels, RGB, as load_image_color goes on behind its decoder (image.c, load_image_stb). */
int shim_detect_image(network *net, unsigned char *pixels, int w, int h, float thresh, float hier, float nms, float *rows, int most) {
    image im = make_image(w, h, 3);
    int found, i, j, k;
    for (k = 0; k < 3; ++k)
        for (j = 0; j < h; ++j)
            for (i = 0; i < w; ++i) im.data[i + w * j + w * h * k] = (float)pixels[k + 3 * i + 3 * w * j] / 255.;
    found = shim_detect(net, im.data, w, h, 3, thresh, hier, nms, rows, most);
    free_image(im);
    return found;
}
