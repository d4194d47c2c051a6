/* Every operator over images of the GPU against the CPU's: poolings to the bit with their positions, norms in every
 * mode. Skipped where there is no GPU. ctest-labels: gpu */
#include "gpu_work.h"
#include "image_cases.h"

TEST_EACH(every_operator, image_cases) { agrees_with_the_cpu(&image_cases[_i]); }

int main(void) { return gpu_run("gpu_image"); }
