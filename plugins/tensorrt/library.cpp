// libpytrtplugins.so: the package's layers for TensorRT, without Python. Linked behind the layers.
#include <pytrtplugins/tensorrt.h>

PYTRTPLUGINS_TENSORRT_LIBRARY
