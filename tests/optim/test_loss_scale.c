/* The scale of the loss follows the rules of torch.amp.GradScaler, whose arithmetic is repeated here:
 * growth after growth_interval steps in a row without an overflow, back-off at each overflow, in float32. */
#include <float.h>
#include <math.h>

#include "check_main.h"
#include "optim/loss_scale.h"

static const struct loss_scale_config defaults = {65536, 2, 0.5, 2000};

static void step(const struct loss_scale_config *config, struct loss_scale *state, int finite, int overflows) {
    for (int i = 0; i < finite; i++) loss_scale_update(config, state, false);
    for (int i = 0; i < overflows; i++) loss_scale_update(config, state, true);
}

TEST(starts_with_init_scale) {
    struct loss_scale state = {0};
    ck_assert(loss_scale_value(&defaults, &state) == 65536);
    step(&defaults, &state, 1999, 0);
    ck_assert(loss_scale_value(&defaults, &state) == 65536);
    ck_assert_int_eq(state.growth_tracker, 1999);
}

TEST(grows_after_the_interval) {
    struct loss_scale state = {0};
    step(&defaults, &state, 2000, 0);
    ck_assert(state.scale == 131072);
    ck_assert_int_eq(state.growth_tracker, 0);
    step(&defaults, &state, 1999, 0);
    ck_assert(state.scale == 131072);
    step(&defaults, &state, 1, 0);
    ck_assert(state.scale == 262144);
}

TEST(an_overflow_halves_it_and_resets_the_count) {
    struct loss_scale state = {0};
    step(&defaults, &state, 0, 3);
    ck_assert(state.scale == 8192);
    step(&defaults, &state, 1999, 1);
    ck_assert(state.scale == 4096);
    step(&defaults, &state, 1999, 0);
    ck_assert(state.scale == 4096);
    step(&defaults, &state, 1, 0);
    ck_assert(state.scale == 8192);
}

/* Against the rules, step by step, with factors that are not float32 values. */
TEST(is_rounded_to_float32) {
    struct loss_scale_config config = {1000.1, 1.3, 0.7, 3};
    struct loss_scale state = {0};
    float scale = 1000.1f;
    int tracker = 0;
    for (int i = 0; i < 1000; i++) {
        bool has_overflowed = i % 7 == 5 || i % 11 == 3;
        loss_scale_update(&config, &state, has_overflowed);
        tracker = has_overflowed ? 0 : tracker + 1;
        if (has_overflowed) scale = (float)((double)scale * 0.7);
        if (tracker == 3) {
            scale = (float)((double)scale * 1.3);
            tracker = 0;
        }
        ck_assert(loss_scale_value(&config, &state) == (double)scale);
        ck_assert_int_eq(state.growth_tracker, tracker);
    }
}

TEST(never_grows_beyond_float32) {
    struct loss_scale_config config = {0x1p127, 2, 0.5, 1};
    struct loss_scale state = {0};
    step(&config, &state, 3, 0);
    ck_assert(state.scale == 0x1p127);
    step(&config, &state, 0, 1);
    ck_assert(state.scale == 0x1p126);
}

/* 0 means that the scale is not set, and 1 / scale must be finite. */
TEST(never_becomes_0) {
    struct loss_scale_config config = {1e-6, 2, 1e-6, 1};
    struct loss_scale state = {0};
    step(&config, &state, 0, 20);
    ck_assert(loss_scale_value(&config, &state) == (double)FLT_MIN);
    ck_assert(isfinite(1 / (float)state.scale));
    step(&config, &state, 1, 0);
    ck_assert(state.scale == 2 * (double)FLT_MIN);
}

/* A scale of 1 does not change the gradients. */
TEST(can_overflow_above_1) {
    struct loss_scale state = {0};
    step(&defaults, &state, 0, 15);
    ck_assert(state.scale == 2);
    ck_assert(loss_scale_can_overflow(&defaults, &state));
    step(&defaults, &state, 0, 1);
    ck_assert(state.scale == 1);
    ck_assert(!loss_scale_can_overflow(&defaults, &state));
}

CHECK_MAIN("loss_scale")
