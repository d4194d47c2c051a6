! Predicts a wine with the model of a run folder:
!
!     gfortran wine.f90 $(pkg-config --libs ddptrain_predict) -o wine && ./wine
program wine
  use iso_c_binding
  implicit none

  type, bind(c) :: results
    type(c_ptr) :: outputs = c_null_ptr, predictions = c_null_ptr, probabilities = c_null_ptr
  end type results

  interface
    function ddptrain_model_open(path, options, model, message, message_size) bind(c) result(code)
      import
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), value :: options
      type(c_ptr), intent(out) :: model
      character(kind=c_char), intent(out) :: message(*)
      integer(c_size_t), value :: message_size
      integer(c_int) :: code
    end function ddptrain_model_open

    function ddptrain_predict(model, inputs, rows, where_to, message, message_size) bind(c) result(code)
      import
      type(c_ptr), value :: model
      real(c_float), intent(in) :: inputs(*)
      integer(c_size_t), value :: rows
      type(results), intent(in) :: where_to
      character(kind=c_char), intent(out) :: message(*)
      integer(c_size_t), value :: message_size
      integer(c_int) :: code
    end function ddptrain_predict

    subroutine ddptrain_model_close(model) bind(c)
      import
      type(c_ptr), value :: model
    end subroutine ddptrain_model_close
  end interface

  character(kind=c_char) :: message(500)
  type(c_ptr) :: model
  type(results) :: where_to
  real(c_float), target :: outputs(3)  ! info->outputs
  real(c_float) :: row(13)             ! info->input_size

  row = [14.23, 1.71, 2.43, 15.6, 127.0, 2.8, 3.06, 0.28, 2.29, 5.64, 1.04, 3.92, 1065.0]
  where_to%outputs = c_loc(outputs)
  call check(ddptrain_model_open("runs/wine_mlp" // c_null_char, c_null_ptr, model, message, 500_c_size_t))
  call check(ddptrain_predict(model, row, 1_c_size_t, where_to, message, 500_c_size_t))
  print *, outputs
  call ddptrain_model_close(model)

contains

  subroutine check(code)
    integer(c_int), intent(in) :: code
    integer :: i
    if (code == 0) return
    do i = 1, size(message)
      if (message(i) == c_null_char) exit
      write (*, '(a)', advance='no') message(i)
    end do
    print *
    error stop 1
  end subroutine check

end program wine
