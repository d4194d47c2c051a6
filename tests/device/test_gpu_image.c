/* Every operator over images of the GPU against the CPU's: poolings to the bit with their positions, norms in every
 * mode. Skipped where there is no GPU. ctest-labels: gpu */
#include "gpu_work.h"
#include "image_cases.h"

START_TEST(every_operator) { agrees_with_the_cpu(&image_cases[_i]); }
END_TEST

int main(void) {
    const struct check_loop loops[] = {EACH(every_operator, image_cases)};
    return gpu_run("gpu_image", loops, sizeof loops / sizeof *loops);
}
