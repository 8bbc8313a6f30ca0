"""What tests of a command share whose work is done by stubs."""


def ends(pytrt, *words):
    """The command comes as far as the stub that ends it."""
    code, _, err = pytrt(*words)
    assert (code, "enough" in err) == (2, True), err
