#!/usr/bin/env python3
"""Calls the C file that `ddptrain export runs/wine_mlp --out wine.c` wrote, without other packages:

    cc -O2 -shared -fPIC wine.c -o libwine.so -lm
    python3 predict.py ./libwine.so
"""
import ctypes
import sys

INPUTS, OUTPUTS = 13, 3  # MODEL_INPUTS and MODEL_OUTPUTS of wine.h

library = ctypes.CDLL(sys.argv[1])
library.model_predict.argtypes = [ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_float)]
wine = (ctypes.c_float * INPUTS)(14.23, 1.71, 2.43, 15.6, 127, 2.8, 3.06, 0.28, 2.29, 5.64, 1.04, 3.92, 1065)
outputs = (ctypes.c_float * OUTPUTS)()
if library.model_predict(wine, outputs) != 0:
    sys.exit("no memory")
print(*outputs)
