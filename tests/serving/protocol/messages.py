"""What the messages of a module that protobuf made are made of: prints it as JSON, for the module that the argument names."""

import importlib
import json
import sys


def fields(module):
    """The fields of each message of a module that protobuf made: number, type, whether there are many."""
    found = {}

    def walk(message):
        many = (field.is_repeated if hasattr(field, "is_repeated") else field.label == 3 for field in message.fields)
        found[message.full_name] = {
            field.name: [field.number, field.type, each] for field, each in zip(message.fields, many, strict=True)
        }
        for inner in message.nested_types:
            walk(inner)

    for message in module.DESCRIPTOR.message_types_by_name.values():
        walk(message)
    return found


def methods(module):
    """The methods of its services, and what they take and give."""
    return {
        method.full_name: [method.input_type.full_name, method.output_type.full_name]
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


if __name__ == "__main__":
    made = importlib.import_module(sys.argv[1])
    print(json.dumps([fields(made), methods(made)]))
