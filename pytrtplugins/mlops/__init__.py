"""Operations around networks: data, tables, versions of models, drift and pipelines. Nothing else of the package imports them."""
