#!/usr/bin/env python3
"""Predicts passengers with the model of a run folder, by ctypes, without other packages:

    ddptrain configs/titanic.yaml
    python3 titanic.py runs/titanic [LIBRARY]
"""
import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_void_p


class Info(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("epoch", c_int64), ("step", c_int64), ("parameters", c_size_t), ("inputs", c_int),
                ("input_size", c_size_t), ("input_dims", c_size_t), ("input_shape", POINTER(c_int64)), ("vocabulary", c_int64),
                ("columns", c_size_t), ("column_names", POINTER(c_char_p)), ("outputs", c_size_t), ("predictions", c_size_t),
                ("prediction_names", POINTER(c_char_p)), ("prediction_is_class", POINTER(ctypes.c_ubyte)), ("probabilities", c_size_t),
                ("probability_names", POINTER(c_char_p)), ("labels", c_size_t), ("label_names", POINTER(c_char_p))]


class Column(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("texts", POINTER(c_char_p)), ("numbers", POINTER(c_double))]


class Results(ctypes.Structure):
    _fields_ = [("outputs", POINTER(c_float)), ("predictions", POINTER(c_double)), ("probabilities", POINTER(c_float))]


library = ctypes.CDLL(sys.argv[2] if len(sys.argv) > 2 else "libddptrain_predict.so.0")
library.ddptrain_model_open.argtypes = [c_char_p, c_void_p, POINTER(c_void_p), c_char_p, c_size_t]
library.ddptrain_model_info.argtypes = [c_void_p]
library.ddptrain_model_info.restype = POINTER(Info)
library.ddptrain_predict_table.argtypes = [c_void_p, POINTER(Column), c_size_t, c_size_t, POINTER(Results), c_char_p, c_size_t]
library.ddptrain_model_close.argtypes = [c_void_p]
message = ctypes.create_string_buffer(500)


def check(code):
    if code != 0:
        sys.exit(message.value.decode())


def texts(*cells):
    """None: a missing value."""
    return (c_char_p * len(cells))(*(cell and cell.encode() for cell in cells))


def numbers(*values):
    return (c_double * len(values))(*values)


passengers = {"Pclass": numbers(3, 1), "Sex": texts("male", "female"), "Age": numbers(22, float("nan")), "SibSp": numbers(1, 0),
              "Fare": numbers(7.25, 80.0), "Embarked": texts("S", None), "Booked": texts("1912-03-14", "1912-04-01")}

model = c_void_p()
check(library.ddptrain_model_open(sys.argv[1].encode(), None, byref(model), message, len(message)))
info = library.ddptrain_model_info(model).contents
columns = (Column * len(passengers))()
for column, (name, cells) in zip(columns, passengers.items()):
    column.name = name.encode()
    if isinstance(cells, ctypes.Array) and cells._type_ is c_double:
        column.numbers = cells
    else:
        column.texts = cells
classes, probabilities = (c_double * 2)(), (c_float * (2 * info.probabilities))()
results = Results(None, classes, probabilities)
check(library.ddptrain_predict_table(model, columns, len(columns), 2, byref(results), message, len(message)))
for row in range(2):
    print(int(classes[row]), *probabilities[row * info.probabilities:(row + 1) * info.probabilities])
library.ddptrain_model_close(model)
