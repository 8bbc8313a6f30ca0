# find_package(pytrtplugins): the headers for plugins in C++, and a function that makes a library of such plugins.
#
#     find_package(pytrtplugins 0.1 REQUIRED)
#     pytrtplugins_add_library(acme shuffle.cpp)    # libacme.so, for pytrtplugins.load_library
#
# The target pytrtplugins::headers is the headers alone; there is nothing to link.
foreach(include ../include ../plugins/include ../../../include)  # in a checkout; installed by pip, by cmake --install
  if(NOT pytrtplugins_INCLUDE_DIR AND EXISTS ${CMAKE_CURRENT_LIST_DIR}/${include}/pytrtplugins/plugin.h)
    get_filename_component(pytrtplugins_INCLUDE_DIR ${CMAKE_CURRENT_LIST_DIR}/${include} ABSOLUTE)
  endif()
endforeach()
if(NOT pytrtplugins_INCLUDE_DIR)
  set(pytrtplugins_FOUND FALSE)
  set(pytrtplugins_NOT_FOUND_MESSAGE "The headers, pytrtplugins/plugin.h, are not beside ${CMAKE_CURRENT_LIST_DIR}")
  return()
endif()

if(NOT TARGET pytrtplugins::headers)
  add_library(pytrtplugins::headers INTERFACE IMPORTED)
  target_include_directories(pytrtplugins::headers INTERFACE ${pytrtplugins_INCLUDE_DIR})
  target_compile_features(pytrtplugins::headers INTERFACE cxx_std_17)
endif()

# pytrtplugins_add_library(target source...): a shared library of plugins, each registered by PYTRTPLUGINS_REGISTER.
function(pytrtplugins_add_library target)
  add_library(${target} MODULE ${ARGN})
  target_link_libraries(${target} PRIVATE pytrtplugins::headers)
endfunction()
