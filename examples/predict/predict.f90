! Calls the C file that `ddptrain export runs/wine_mlp --out wine.c` wrote:
!
!     cc -c -O2 wine.c
!     gfortran predict.f90 wine.o -lm -o predict && ./predict
program predict
  use iso_c_binding, only: c_float, c_int
  implicit none

  interface
    function model_predict(inputs, outputs) bind(c) result(code)
      import :: c_float, c_int
      real(c_float), intent(in) :: inputs(*)
      real(c_float), intent(out) :: outputs(*)
      integer(c_int) :: code
    end function model_predict
  end interface

  integer, parameter :: n_inputs = 13, n_outputs = 3  ! MODEL_INPUTS and MODEL_OUTPUTS of wine.h
  real(c_float) :: wine(n_inputs), outputs(n_outputs)

  wine = [14.23, 1.71, 2.43, 15.6, 127.0, 2.8, 3.06, 0.28, 2.29, 5.64, 1.04, 3.92, 1065.0]
  if (model_predict(wine, outputs) /= 0) error stop "no memory"
  print *, outputs
end program predict
