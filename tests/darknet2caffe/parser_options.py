"""The options that darknet's src/parser.c reads, by section: of [net], of all layers, and of those that are converted."""

PJREDDIE = {
    "local": "filters size stride pad activation",
    "deconvolutional": "filters size stride activation batch_normalize pad padding",
    "convolutional": "filters size stride pad padding groups activation batch_normalize binary xnor flipped dot",
    "connected": "output activation batch_normalize",
    "softmax": "groups temperature tree spatial noloss",
    "yolo": "classes num mask max jitter ignore_thresh truth_thresh random map anchors",
    "region": (
        "coords classes num log sqrt softmax background max jitter rescore thresh classfix absolute random "
        "coord_scale object_scale noobject_scale mask_scale class_scale bias_match tree map anchors"
    ),
    "detection": (
        "coords classes rescore num side softmax sqrt max coord_scale forced object_scale noobject_scale "
        "class_scale jitter random reorg"
    ),
    "cost": "type scale ratio noobj thresh",
    "crop": "crop_height crop_width flip angle saturation exposure noadjust shift",
    "reorg": "stride reverse flatten extra",
    "maxpool": "stride size padding",
    "dropout": "probability",
    "normalization": "alpha beta kappa size",
    "shortcut": "from activation alpha beta",
    "activation": "activation",
    "upsample": "stride scale",
    "route": "layers",
    "net": (
        "batch learning_rate momentum decay subdivisions time_steps notruth random adam B1 B2 eps height width "
        "channels inputs max_crop min_crop max_ratio min_ratio center clip angle aspect saturation exposure hue "
        "policy burn_in power step scale steps scales gamma max_batches"
    ),
    "layers": ("truth onlyforward stopbackward dontsave dontload numload dontloadscales learning_rate smooth"),
}
"""pjreddie/darknet f6afaabc; ``layers``: parse_network_cfg."""

ALEXEYAB = {
    "local": "filters size stride pad activation",
    "convolutional": (
        "filters groups size stride_x stride_y stride dilation antialiasing pad padding activation "
        "assisted_excitation share_index batch_normalize cbn binary xnor bin_output sway rotate stretch "
        "stretch_sway flipped dot angle grad_centr reverse coordconv stream wait_stream"
    ),
    "connected": "output activation batch_normalize",
    "softmax": "groups temperature tree spatial noloss",
    "yolo": (
        "classes num mask max show_details max_delta counters_per_class label_smooth_eps scale_x_y "
        "objectness_smooth new_coords iou_normalizer obj_normalizer cls_normalizer delta_normalizer iou_loss "
        "iou_thresh_kind beta_nms nms_kind jitter resize focal_loss ignore_thresh truth_thresh iou_thresh random "
        "track_history_size sim_thresh dets_for_track dets_for_show track_ciou_norm embedding_layer map anchors"
    ),
    "region": (
        "coords classes num max log sqrt softmax focal_loss jitter resize rescore thresh classfix absolute random "
        "coord_scale object_scale noobject_scale mask_scale class_scale bias_match tree map anchors"
    ),
    "detection": (
        "coords classes rescore num side softmax sqrt max coord_scale forced object_scale noobject_scale "
        "class_scale jitter resize random reorg"
    ),
    "cost": "type scale ratio",
    "crop": "crop_height crop_width flip angle saturation exposure noadjust shift",
    "reorg3d": "stride reverse",
    "reorg": "stride reverse",
    "maxpool": ("stride stride_x stride_y size padding maxpool_depth out_channels antialiasing maxpool_zero_nonmax"),
    "dropout": "probability dropblock dropblock_size_rel dropblock_size_abs",
    "normalization": "alpha beta kappa size",
    "shortcut": "activation weights_type weights_normalization from",
    "scale_channels": "from scale_wh activation",
    "sam": "from activation",
    "activation": "activation",
    "upsample": "stride scale",
    "route": "layers groups group_id stream wait_stream",
    "net": (
        "max_batches batch learning_rate learning_rate_min sgdr_cycle sgdr_mult momentum decay subdivisions "
        "time_steps track augment_speed sequential_subdivisions try_fix_nan weights_reject_freq equidistant_point "
        "badlabels_rejection_percentage num_sigmas_reject_badlabels ema_alpha use_cuda_graph loss_scale "
        "dynamic_minibatch optimized_memory workspace_size_limit_MB adam B1 B2 eps height width channels inputs "
        "max_crop min_crop flip blur gaussian_noise mixup cutmix mosaic letter_box mosaic_bound contrastive "
        "contrastive_jit_flip contrastive_color unsupervised label_smooth_eps resize_step attention adversarial_lr "
        "max_chart_loss angle aspect saturation exposure hue power policy burn_in step scale steps scales "
        "seq_scales gamma"
    ),
    "layers": (
        "stopbackward clip onlyforward dont_update burnin_update train_only_bn dontload dontloadscales learning_rate"
    ),
}
"""AlexeyAB/darknet 59596d78; ``layers``: parse_network_cfg."""
